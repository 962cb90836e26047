package api

import (
	"encoding/json"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/agentdb/view"
)

// What an agent's database answers, as the API sends it.
type (
	Schema = schema.Schema
	Rows   = agentdb.Rows
	Stats  = agentdb.Stats
	View   = view.View
	// ViewParam is a parameter of a saved view.
	ViewParam = view.Param
	// ViewResult is what a saved view answered, and when.
	ViewResult = agentdb.ViewResult
)

// Change is an entry of an agent's changelog.
type Change struct {
	ID     int64           `json:"id"`
	At     string          `json:"at"`
	Run    string          `json:"run"`                    // "0": no run's
	Other  bool            `json:"other_ledger,omitempty"` // the run is not of this home's ledger
	Actor  string          `json:"actor"`
	Op     string          `json:"op"`
	Table  string          `json:"table"`
	Key    json.RawMessage `json:"key"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	SQL    string          `json:"sql"`
}

// ViewRequest is what a saved view is asked with.
type ViewRequest struct {
	Params map[string]any `json:"params,omitempty"`
}

// Files of rows, as the API sends them.
type (
	Imported = transfer.Imported
	Exported = agentdb.Exported
)

// ExportRequest asks for the answer of a query as a file.
type ExportRequest struct {
	SQL    string `json:"sql"`
	Params []any  `json:"params,omitempty"`
	Format string `json:"format,omitempty"`
	Name   string `json:"name,omitempty"` // of the file, whose extension can say the format
}

// Copies of an agent's database, as the API sends them.
type (
	Backup   = agentdb.Backup
	Replaced = pool.Replaced
)

// BackupRequest asks for a copy of an agent's database.
type BackupRequest struct {
	File  Path `json:"file,omitempty"` // an absolute path; "" is the folder of the backups
	Force bool `json:"force"`          // the file may exist
}

// RestoreRequest says what an agent's database is to be again.
type RestoreRequest struct {
	From  Path `json:"from"`  // "last", a backup's name, or an absolute path
	Force bool `json:"force"` // another agent's too, and while runs of the agent wait
}

// ResetRequest asks for an empty database.
type ResetRequest struct {
	Force bool `json:"force"` // while runs of the agent wait
}

// QueryRequest asks an agent's database.
type QueryRequest struct {
	SQL            string `json:"sql"`
	Params         []any  `json:"params,omitempty"`
	Limit          int    `json:"limit,omitempty"`
	Offset         int    `json:"offset,omitempty"`
	IncludeDeleted bool   `json:"include_deleted,omitempty"`
}

// HomeBackupRequest asks for a backup of the whole home.
type HomeBackupRequest struct {
	Dest    Path `json:"dest"`     // an absolute path: a folder for backups, or a file that ends in .tar.zst or .tar.gz
	Secrets bool `json:"secrets"`  // also what is kept of secrets, sign-ins and the access to the pages
	NoFiles bool `json:"no_files"` // without the agents' files
}

// HomeBackup is a backup of a home.
type HomeBackup struct {
	Path      string        `json:"path"`
	Bytes     int64         `json:"bytes"` // of what it holds
	Files     int           `json:"files"`
	At        Time          `json:"at"` // the instant of which it is
	Ledger    string        `json:"ledger"`
	NewestRun string        `json:"newest_run"`
	Secrets   bool          `json:"secrets"`
	Databases int           `json:"databases"`
	Unusable  []string      `json:"unusable"` // quarantined databases, copied as they are
	LeftOut   []LeftOutPart `json:"left_out"`
}

// LeftOutPart is what a home has and its backup has not.
type LeftOutPart struct {
	Path string `json:"path"` // below the home
	Why  string `json:"why"`
}
