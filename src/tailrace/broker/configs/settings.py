"""The settings of a node in their layers: what clients changed while it runs lies over what it started with.

A change for this node wins over one for all nodes (a resource without a name), and both win over the node's
configuration (KIP-226). The layers read like one mapping: a caller does not know of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.broker.configs.key import ConfigSource


class NodeSettings(Mapping[str, str]):
    """Texts by the names of `BROKER_CONFIGS`; what is absent has its default."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self.layers: dict[ConfigSource, Mapping[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {},
            ConfigSource.STATIC_BROKER: dict(static),
        }

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(layer)} {source.name}" for source, layer in self.layers.items())
        return f"<NodeSettings {sizes}>"

    def __getitem__(self, name: str) -> str:
        for layer in self.layers.values():
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer in self.layers.values() for name in layer))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def change(self, source: ConfigSource, settings: Mapping[str, str]) -> None:
        """Replace what clients have changed, for this node or for all nodes."""
        assert source in (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        self.layers[source] = dict(settings)
