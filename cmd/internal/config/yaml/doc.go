// Package yaml reads rouse.yaml into settings. It is strict and reports all problems at once, each
// with its file, line and column.
//
// Reading has these steps. Each one continues after a problem:
//
//	parse     build a tree of the file: resolve aliases and merge keys within bounds,
//	          find duplicate keys, record the position of each value
//	include   append the lists of included files to those of the main file
//	overlay   override scalars of the daemon by ROUSE_… variables and flags; user-defined
//	          names are not passed to viper
//	defaults  copy the settings of defaults: to jobs that lack them
//	decode    fill the structs according to their tags
//	complete  set the defaults of missing settings
//
// In values, ${NAME} is replaced by the environment variable NAME, which must be set. $${ is a
// plain ${. Only Add writes: it inserts an item into the text of a file.
package yaml
