// Package config defines the settings of rouse.yaml: their types, tags and defaults.
//
// The settings are Go structs. The decoder, the JSON Schema and `config show` use the tags of a
// key, so each key is defined once. See Field for the tags.
//
// Four packages work on the settings:
//
//	yaml    reads them from files: parse, include, overlay, defaults, decode
//	check   checks them: references, schedules, templates, expressions, tool names, folders
//	load    reads and checks a configuration
//	places  finds the folders in which agents and other parties can write
package config
