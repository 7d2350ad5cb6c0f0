-- Silver: records parsed and typed. What is no order or no payment is left in bronze, where it can be looked at.

CREATE STREAMING TABLE silver_orders
COMMENT 'Orders with typed columns.'
AS SELECT
  data.`order` AS order_id,
  data.customer,
  data.product,
  data.quantity,
  data.total,
  `timestamp` AS ordered_at,
  `partition`,
  `offset`
FROM (
  SELECT
    *,
    from_json(
      CAST(value AS STRING),
      '`order` STRING, customer STRING, product STRING, quantity INT, total DECIMAL(12, 2)'
    ) AS data
  FROM STREAM bronze_orders
)
WHERE data.`order` IS NOT NULL;

CREATE STREAMING TABLE silver_payments
COMMENT 'Payments with typed columns.'
AS SELECT
  data.`order` AS order_id,
  data.amount,
  data.method,
  data.accepted,
  `timestamp` AS paid_at,
  `partition`,
  `offset`
FROM (
  SELECT
    *,
    from_json(
      CAST(value AS STRING),
      '`order` STRING, amount DECIMAL(12, 2), method STRING, accepted BOOLEAN'
    ) AS data
  FROM STREAM bronze_payments
)
WHERE data.`order` IS NOT NULL;
