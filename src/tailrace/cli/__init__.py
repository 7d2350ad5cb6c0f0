"""The command line: `tailrace NOUN VERB`, one module per noun.

`main`    the root: which nouns there are, and what running one comes to
`exit`    exit codes, and the one line that a failed command leaves on stderr
`output`  `-o table|json|jsonl`, progress bars, examples in help texts

A noun's module offers `command` and is imported only when that noun is asked for, so that `tailrace --help`
stays quick. Nothing here decides anything: a command parses, calls the package that knows, and shows what
came back.
"""
