// Package config reads rouse.yaml: strictly, with every problem at once, and each problem
// with its file, line and column.
//
// # Design
//
// The settings are Go structs whose tags say what the decoder, the JSON Schema and `config
// show` need to know; a key exists in one place (settings.go, job.go; schema.go lists the tags).
//
// Reading goes in steps, and each goes on after a problem:
//
//	parse     a file becomes a tree: aliases and merge keys are resolved within bounds,
//	          a key that is given twice is found, every value knows where it stood
//	include   the lists of included files are appended to those of the main one
//	overlay   viper lets ROUSE_… and flags decide the daemon's scalars; it sees no name
//	          that a user chose
//	defaults  each job gets what defaults: says and the job does not
//	decode    the tree fills the structs, guided by their tags
//	preset    what was left out gets its default
//	check     references, schedules, templates, expressions, tool names, folders
//
// In values, ${NAME} is the environment variable NAME, and one that is not set is an error.
// $${ is a plain ${.
//
// The only writer is Add, which inserts an item into the text of a file.
//
// # Size
//
// The settings, and a file for each step above and for each part of the checks (check_….go): they
// share the decoder and the checker, so no part of them is of use without the others.
package config
