// Package tabular reads and writes tables as files: CSV, TSV, JSON, JSON lines and workbooks
// (xlsx). It does not use databases. Package agentdb maps the columns of a file to the columns of a
// table.
//
// # Design
//
// A file is read twice. Scan reads all rows, so that types are inferred from every row and an error
// anywhere is found before any row is written. Records then returns the rows.
//
// Values are nil (NULL), int64, float64 or string. A written file is read back as the same rows,
// with two exceptions: CSV and TSV have no NULL, and a workbook keeps only 15 digits of a number,
// so longer integers are written as text. A type is inferred only if no information is lost: "007",
// "+49 30", "12,50" and 20-digit numbers stay text.
//
// The content of a file is untrusted. It is in memory before it is parsed, up to a size that the
// caller allows. Workbooks are compressed, so they are read as a stream with limits on every part.
// Libraries build the whole sheet in memory, as large as its attributes claim, and skip cells
// without a position.
package tabular
