package api

import (
	"encoding/json"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/agentdb/view"
)

type (
	// Schema describes the tables and views of an agent's database.
	Schema = schema.Schema
	// Rows is the result of a query.
	Rows = agentdb.Rows
	// Stats holds the sizes of an agent's database.
	Stats = agentdb.Stats
	// View is a saved view.
	View = view.View
	// ViewParam is a parameter of a saved view.
	ViewParam = view.Param
	// ViewResult is the stored result of a saved view.
	ViewResult = agentdb.ViewResult
)

// Change is an entry of an agent's changelog.
type Change struct {
	ID     int64           `json:"id"`
	At     string          `json:"at"`
	Run    string          `json:"run"`                    // "0" if the change was not made by a run
	Other  bool            `json:"other_ledger,omitempty"` // the run belongs to another home's ledger
	Actor  string          `json:"actor"`
	Op     string          `json:"op"`
	Table  string          `json:"table"`
	Key    json.RawMessage `json:"key"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	SQL    string          `json:"sql"`
}

// ViewRequest holds the parameters of a saved view.
type ViewRequest struct {
	Params map[string]any `json:"params,omitempty"`
}

type (
	// Imported is the result of an import.
	Imported = transfer.Imported
	// Exported is the result of an export.
	Exported = agentdb.Exported
)

// ExportRequest requests the result of a query as a file.
type ExportRequest struct {
	SQL    string `json:"sql"`
	Params []any  `json:"params,omitempty"`
	Format string `json:"format,omitempty"`
	Name   string `json:"name,omitempty"` // file name; its extension can set the format
}

type (
	// Backup is a copy of an agent's database.
	Backup = agentdb.Backup
	// Replaced describes a database that was replaced by a restore or a reset.
	Replaced = pool.Replaced
)

// BackupRequest requests a copy of an agent's database.
type BackupRequest struct {
	File  Path `json:"file,omitempty"` // absolute path; default: a new file in the backup directory
	Force bool `json:"force"`          // overwrite an existing file
}

// RestoreRequest requests that an agent's database be restored from a copy.
type RestoreRequest struct {
	From  Path `json:"from"`  // "last", the name of a backup, or an absolute path
	Force bool `json:"force"` // allow another agent's backup, and waiting runs of the agent
}

// ResetRequest requests an empty database.
type ResetRequest struct {
	Force bool `json:"force"` // allow waiting runs of the agent
}

// QueryRequest queries an agent's database.
type QueryRequest struct {
	SQL            string `json:"sql"`
	Params         []any  `json:"params,omitempty"`
	Limit          int    `json:"limit,omitempty"`
	Offset         int    `json:"offset,omitempty"`
	IncludeDeleted bool   `json:"include_deleted,omitempty"`
}

// HomeBackupRequest requests a backup of the whole home.
type HomeBackupRequest struct {
	Dest    Path `json:"dest"`     // absolute path of a directory for backups, or of a .tar.zst or .tar.gz file
	Secrets bool `json:"secrets"`  // include secrets, logins and the dashboard's credentials
	NoFiles bool `json:"no_files"` // exclude the agents' files
}

// HomeBackup describes a backup of a home.
type HomeBackup struct {
	Path      string        `json:"path"`
	Bytes     int64         `json:"bytes"` // total size of the contents
	Files     int           `json:"files"`
	At        Time          `json:"at"` // instant of the backup
	Ledger    string        `json:"ledger"`
	NewestRun string        `json:"newest_run"`
	Secrets   bool          `json:"secrets"`
	Databases int           `json:"databases"`
	Unusable  []string      `json:"unusable"` // quarantined databases, copied as plain files
	LeftOut   []LeftOutPart `json:"left_out"`
}

// LeftOutPart is a file or directory of the home that the backup does not contain.
type LeftOutPart struct {
	Path string `json:"path"` // relative to the home
	Why  string `json:"why"`
}
