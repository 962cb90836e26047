// Package after moves, deletes or leaves a file of a watched folder after its run has ended.
//
// A file is identified by its content, so that another file in its place is never touched. Each
// step can be repeated: after a crash between a move and its record, the file is found at its new
// path. Folders are opened so that no link leads out of the watched folder.
package after
