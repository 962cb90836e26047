// Package preview shows the beginning of files that a model cannot read as text. It supports PDF
// files, spreadsheets, and BMP pictures, which it converts to PNG.
//
// # Design
//
// Such files come from untrusted sources, and their parsers are large. An endless loop, a cycle or
// a wrong length must not affect the daemon. Recovering from a panic is not enough for that. Each
// file is therefore read by a separate process of this binary. The process gets only the bytes of
// the file. It watches its own memory and time, and is killed if it does not end.
//
// The sandbox confines the process like a command, without any folder or network. Any tier of the
// sandbox is sufficient. The parsers are written in Go, so a hostile file can stop them but not
// take them over.
package preview
