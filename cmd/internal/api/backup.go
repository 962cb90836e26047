package api

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
