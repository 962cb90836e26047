// Package preview shows the beginning of files that a model cannot read as text: the words of a
// PDF, the cells of a spreadsheet, a BMP picture as PNG.
//
// # Design
//
// Such files come from strangers, and what reads them is large: a loop without an end, a cycle or
// a length that is a lie must cost an answer and not the daemon. Recovering from a panic is not
// enough for that. So each file is read by a process of its own, this very binary, which is given
// the file's bytes and nothing else, watches its own memory and time, and is killed when it does
// not end. The sandbox confines it as it does commands, without any folder or network. Where this machine
// confines nothing it reads all the same: the readers are Go, which a hostile file can stop but not take over.
package preview
