-- Gold: what somebody asks for. Materialized views are computed anew by each run, from all of silver.

CREATE MATERIALIZED VIEW gold_products
COMMENT 'What each product sold.'
AS SELECT
  product,
  COUNT(*) AS orders,
  SUM(quantity) AS pieces,
  SUM(total) AS revenue
FROM silver_orders
GROUP BY product;

CREATE MATERIALIZED VIEW gold_methods
COMMENT 'How orders are paid, how many payments are refused, and how long a payment takes.'
AS SELECT
  p.method,
  COUNT(*) AS payments,
  SUM(IF(p.accepted, 0, 1)) AS refused,
  SUM(IF(p.accepted, p.amount, 0)) AS paid,
  ROUND(AVG(unix_millis(p.paid_at) - unix_millis(o.ordered_at)) / 1000, 1) AS seconds_to_pay
FROM silver_payments AS p
JOIN silver_orders AS o ON o.order_id = p.order_id
GROUP BY p.method;
