"""The names of a simulated disk, with POSIX's rules for making, moving and removing them.

Names and files are apart: an inode lives while it has a name, is open, or may have a name after a power cut.
It takes space while it has a name or is open.
"""

from __future__ import annotations

import errno
import os

from tailrace.testing.simulation.directory import Directory, Node
from tailrace.testing.simulation.inode import Inode


class Tree:
    """Everything below the data directory."""

    def __init__(self) -> None:
        self.root = Directory()
        self._nameless: dict[Inode, None] = {}  # removed while open

    def node(self, path: str) -> Node:
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR, path)
            if name not in node.names:
                raise os_error(errno.ENOENT, path)
            node = node.names[name]
        return node

    def inode(self, path: str) -> Inode:
        node = self.node(path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.node(path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = _names(path)
        return self.directory("/".join(above)), name

    def create(self, path: str) -> Inode:
        """A new file, or the one that is there, emptied."""
        parent, name = self._parent(path)
        if name in parent.names:
            inode = self.inode(path)
            inode.truncate(0)
        else:
            inode = Inode()
            parent.add(name, inode)
        return inode

    def make_directory(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.names:
            raise os_error(errno.EEXIST, path)
        parent.add(name, Directory())

    def rename(self, *, source: str, target: str) -> None:
        node = self.node(source)
        old, old_name = self._parent(source)
        new, new_name = self._parent(target)
        replaced = new.names.get(new_name)
        if replaced is node:
            return
        _check_move(node, new, replaced, target)
        if old is new:
            old.rename(source=old_name, target=new_name)
        else:
            new.add(new_name, node)
            old.remove(old_name)
        self._let_go(replaced)

    def link(self, *, source: str, target: str) -> bool:
        """Give a file a second name; False if there is no such file."""
        old, old_name = self._parent(source)
        if old_name not in old.names:
            return False
        parent, name = self._parent(target)
        if name in parent.names:
            raise os_error(errno.EEXIST, target)
        parent.add(name, self.inode(source))
        return True

    def remove(self, path: str) -> None:
        node = self.node(path)
        parent, name = self._parent(path)
        if isinstance(node, Directory) and node.names:
            raise os_error(errno.ENOTEMPTY, path)
        parent.remove(name)
        self._let_go(node)

    def _let_go(self, node: Node | None) -> None:
        if isinstance(node, Inode) and node.handles:
            self._nameless[node] = None

    def close(self, inode: Inode) -> None:
        """One of the handles is gone."""
        inode.handles -= 1
        if not inode.handles:
            self._nameless.pop(inode, None)

    def taken_bytes(self) -> int:
        """Space in use, with what is reserved and not yet written."""
        named = [node for _, node in self.root.walk() if isinstance(node, Inode)]
        return sum(inode.reserved_end for inode in dict.fromkeys((*named, *self._nameless)))

    def everything(self) -> list[Node]:
        """Whatever has a name, or may have one after a power cut; the root is the first."""
        found: dict[Node, None] = {self.root: None}
        queue: list[Node] = [self.root]
        for node in queue:
            if isinstance(node, Directory):
                unseen = [known for known in node.known() if known not in found]
                found.update(dict.fromkeys(unseen))
                queue += unseen
        return queue

    def start_life(self) -> None:
        """The process is gone, and with it every open file."""
        self._nameless.clear()
        for node in self.everything():
            if isinstance(node, Inode):
                node.start_life()


def os_error(code: int, path: str) -> OSError:
    """What the system would raise; OSError picks the subclass by the number."""
    return OSError(code, os.strerror(code), path)


def _names(path: str) -> list[str]:
    names = path.removesuffix("/").split("/") if path else []
    assert all(name not in ("", ".", "..") for name in names), f"{path!r} is not a path below the directory"
    return names


def _check_move(node: Node, parent: Directory, replaced: Node | None, target: str) -> None:
    """Refuse a move into itself, and over what cannot be replaced."""
    if isinstance(node, Directory):
        if node is parent or any(below is parent for _, below in node.walk()):
            raise os_error(errno.EINVAL, target)
        if isinstance(replaced, Inode):
            raise os_error(errno.ENOTDIR, target)
        if replaced is not None and replaced.names:
            raise os_error(errno.ENOTEMPTY, target)
    elif isinstance(replaced, Directory):
        raise os_error(errno.EISDIR, target)
