"""Access control lists: who may do what to which resource, as Kafka knows it (KIP-11, KIP-290).

`binding`   one entry: principal, host, operation, allow or deny, and the pattern of the resource's name
`index`     entries by kind and name, so that a decision looks at those alone that match
`decision`  pure: may a principal at a host do this? Deny wins, and what no entry allows is denied
`filter`    which entries a listing or a removal means
`acls`      those of a node: in memory for decisions, in an `AclStore` for good, with watchers
`text`      entries and filters in words, for people and stores
`store`     the port `AclStore`, and one that goes with its process
"""

from tailrace.security.acl.acls import Acls, UnknownAcl
from tailrace.security.acl.binding import (
    EVERYBODY,
    EVERYWHERE,
    AclBinding,
    Pattern,
    Permission,
    binding_id,
    check_binding,
)
from tailrace.security.acl.decision import decide
from tailrace.security.acl.filter import EVERY_ACL, AclFilter, PatternFilter
from tailrace.security.acl.index import AclIndex
from tailrace.security.acl.store import AclStore, MemoryAcls

__all__ = [
    "EVERYBODY",
    "EVERYWHERE",
    "EVERY_ACL",
    "AclBinding",
    "AclFilter",
    "AclIndex",
    "AclStore",
    "Acls",
    "MemoryAcls",
    "Pattern",
    "PatternFilter",
    "Permission",
    "UnknownAcl",
    "binding_id",
    "check_binding",
    "decide",
]
