// Package file implements the file tools of an agent, such as file_read, file_edit and file_undo,
// and share_artifact. read_file, write_file, edit_file, list_files and search are aliases with
// their own arguments. An agent sees an alias only if its list of tools names it.
//
// Every path goes through tool.Roots, which decides about access. A file is replaced as a whole or
// not at all. The text tools do not change binary files, files that are marked read-only, and files
// with a second hard link. A separate process reads PDF, XLSX and BMP files, because a hostile file
// may crash the reader.
//
// Every change is recorded before it is made, with the previous content of the file. The content of
// moved files is not stored, because undo moves the files back. Undo compares the current content
// with the content before and after the change. So undo knows, even after a crash, whether the
// change was made and whether the file was changed since. Shared content is stored in the ledger
// and is deleted with its run.
package file
