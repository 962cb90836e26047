// Package config reads rouse.yaml: strictly, with every problem at once, and each problem
// with its file, line and column.
//
// # Design
//
// The settings are Go structs whose tags say what the decoder, the JSON Schema and `config
// show` need to know; a key exists in one place. The decoder walks the YAML tree itself,
// so that it can go on after a problem and knows where every value stood.
//
// A key whose feature is not built yet is marked later: it is known and checked, and its
// use is refused, so that nothing a user wrote is ever ignored.
//
// viper overlays the daemon's scalars with the environment (ROUSE_LOG_LEVEL, …) and with
// flags before decoding; it sees no name that a user chose.
package config
