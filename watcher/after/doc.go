// Package after moves, deletes or leaves a file of a watched folder once its run is over.
//
// A file is known by its content, so that another one in its place is never touched. Each step can be
// repeated: after a crash between a move and its record, the file is found where it lies now. Folders are
// opened in such a way that no link leads out of the watched folder.
package after
