// Package file holds the file tools: file_read, file_write, file_edit, file_move, file_copy, file_delete,
// dir_create, file_search, file_operation_history, file_undo and share_artifact, and the aliases of some of them.
//
// # Design
//
// Every path goes through tool.Roots, so the tools decide only what a text file is, how much of it an
// answer holds, and how it is replaced: as a whole, under its old name, or not at all. An answer says
// what it leaves out, and where to go on. A file that is not text, that its owner marked read-only, or
// that has a second hard link is left as it is. A picture is shown to the model next to an envelope that
// says what it is. The words of a PDF, the beginning of a spreadsheet and a BMP picture are read by a
// separate process, which a hostile file may crash.
//
// What is shared is stored by the ledger together with the rest of the run: it exists with its row or
// not at all, and is deleted with its run (OSA-19).
//
// A file is moved by a rename between two open folders. A move to another file system copies the file, checks the
// hash of the copy, and then removes the original. The contents of moved files are not stored: undo moves the files
// back.
//
// Every change is recorded, with what the file held before, ahead of the change itself. Undo compares
// what the file holds now with the content before and after, so it knows whether the change came about
// and whether somebody changed the file since, whatever crashed in between (OSA-35).
//
// read_file, write_file, edit_file, list_files and search are aliases for models that know the same
// tools by those names: one core each, with its own arguments and its own text. A model sees them only
// if its agent's list of tools names them (UNI-06).
package file
