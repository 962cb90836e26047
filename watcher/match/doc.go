// Package match decides by the name of a file whether a watch selects it. It uses the configured
// include and exclude patterns and the names of hidden, temporary and unfinished files.
package match
