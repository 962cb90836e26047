// Package yaml reads rouse.yaml into settings, strictly: it reports every problem at once, each
// with its file, line and column.
//
// Reading has steps, and each of them continues after a problem:
//
//	parse     a file becomes a tree: aliases and merge keys are resolved within bounds,
//	          a key that is given twice is found, every value knows its position
//	include   the lists of included files are appended to those of the main file
//	overlay   viper lets ROUSE_… and flags override the daemon's scalars; it sees no name
//	          that a user chose
//	defaults  each job gets the settings of defaults: that it does not have
//	decode    the tree fills the structs, guided by their tags
//	complete  settings that were left out get their defaults
//
// In values, ${NAME} is the environment variable NAME; it is an error if it is not set. $${ is a
// plain ${. The only writer is Add, which inserts an item into the text of a file.
package yaml
