// Package config has the settings of rouse.yaml: their types, their tags and their defaults.
//
// # Design
//
// The settings are Go structs. Their tags tell the decoder, the JSON Schema and `config show` what a
// key means, so that a key exists in one place (settings.go, job.go; tags.go lists the tags).
//
// Four packages work on the settings:
//
//	yaml    reads them from files: parse, include, overlay, defaults, decode
//	check   judges them: references, schedules, templates, expressions, tool names, folders
//	load    does both; it is the front door
//	places  knows the folders in which others than the owner may write
package config
