// Package file holds the file tools: file_read, file_write, file_edit, file_search,
// file_operation_history, file_undo and share_artifact, and the second names of some of them.
//
// # Design
//
// Every path goes through tool.Roots, so the tools decide only what a text file is, how
// much of it an answer holds, and how it is replaced: as a whole, under its old name, or
// not at all. What an answer leaves out it says, with the place to go on from. A file that
// is no text, that its owner marked read-only, or that has a second name is left as it is. A picture is
// shown to the model beside an envelope that says what it is. The words of a PDF, the beginning of
// a spreadsheet and a BMP picture come by way of a process of its own, which may die of them.
//
// What is shared is kept by the ledger, beside the rest of its run: it is there with its row or
// not at all, and goes with its run (OSA-19).
//
// Every change is recorded with what the file held before, ahead of the change itself. Undo
// compares what the file holds now with both, so it knows whether the change came about and
// whether somebody changed the file since, whatever crashed in between (OSA-35).
//
// read_file, write_file, edit_file, list_files and search are the same tools as models of another school
// know them: one core each, with its own arguments and its own text. A model sees them only
// where its agent's list of tools names them (UNI-06).
package file
