// Package tabular reads and writes tables as files: CSV, TSV, JSON, JSON lines and workbooks
// (xlsx). It knows nothing of databases; which column of a file goes into which column of a
// table is decided by agentdb.
//
// # Design
//
// A file is read twice. Scan goes through all of it and learns what the values of each column
// have in common, so that types are inferred from every row and not from a sample, and so that
// a fault anywhere is found before anything is written. Records then gives the rows.
//
// Reading and writing share what a value is: NULL is nil, and a value is an int64, a float64 or
// a string. What is written in any of the formats is read as the same rows, with the exceptions
// that a format forces: CSV and TSV have no NULL, and a workbook keeps 15 digits of a number, so
// that longer integers are written as texts. Kinds are inferred only where nothing is lost:
// "007", "+49 30", "12,50" and 20-digit numbers stay text.
//
// The content of a file comes from strangers. All of it is in memory before it is parsed, with
// the size that the caller allows; workbooks, which are compressed, are read as a stream with
// bounds on every part, because libraries build the whole sheet in memory, as large as its
// attributes say, and leave out cells that do not say where they are.
package tabular
