"""A node: its configuration, its assembly, and its life as a process or inside a program.

`setting` `kind` `alias`   every setting in one table, what it accepts, and its older names
`source` `configuration`   flags, environment and file, and who wins
`variable`                 which TAILRACE_* variables are known
`config`                   what a node is built from
`explanation`              what `tailrace config` tells
`assembly` `node`          what each part goes by; the only module that knows every concrete class
`run` `loop`               a node as a process: signals, ports file, screen
`embedded` `local`         `tailrace.Broker` and `tailrace.AsyncBroker`: a node inside a program
`screen` `stats` `logs`    what people see: the screen with its live line, log lines
`program`                  how commands are called from the shell that started us
`ports` `checkup`          who has which port; what `tailrace doctor` looks at
`demo`                     traffic to look at
"""
