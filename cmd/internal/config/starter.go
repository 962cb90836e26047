package config

import _ "embed"

//go:embed starter.yaml
var starter []byte

// Starter is the configuration that `rouse init` writes.
func Starter() []byte { return starter }
