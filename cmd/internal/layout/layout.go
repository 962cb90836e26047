// Package layout lists the parts of a home, for the code that checks, repairs or copies a home.
//
// # Design
//
// A part is a file or directory directly below the home that rouse creates. Everything else there
// belongs to the owner: a configuration, prompts, the workdir of an agent. The kind of a part alone
// decides how a backup treats it. A part added to the list is therefore either backed up or
// explicitly excluded.
package layout

import (
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// Kind is the type of contents of a part. It decides how a backup treats the part.
type Kind string

// The kinds.
const (
	Database Kind = "database" // SQLite database, copied as a snapshot
	Agents   Kind = "agents"   // a directory per agent with its database and files
	Storage  Kind = "storage"  // a directory per agent with databases of skills
	Files    Kind = "files"    // copied unchanged
	Secret   Kind = "secret"   // copied only if the owner requests it
	Copies   Kind = "copies"   // copies of databases, which a backup does not need
	Made     Kind = "made"     // state of a process, or data that can be recreated; not backed up
)

// Part is a file or directory that rouse keeps in a home.
type Part struct {
	Name   string
	Kind   Kind
	Folder bool
}

var parts = []Part{
	{"agents", Agents, true},
	{"backups", Copies, true},
	{"before", Files, true},    // original files of agent programs that have not ended
	{"blobs", Files, true},     // large values of the ledger, by content
	{"calendars", Files, true}, // copies of fetched calendars
	{"checkouts", Made, true},  // private clones; their branches are in the owner's repositories
	{"commands", Made, true},
	{"config-path", Made, false}, // also in the manifest of a backup
	{"dashboard", Secret, true},
	{"engine", Made, false}, // location of the ledger in PostgreSQL
	{"holder.json", Made, false},
	{"last-backup.json", Made, false},
	{"ledger-id", Made, false}, // also stored in the ledger
	{"ledger.db", Database, false},
	{"ledger.db-reserve", Made, false}, // disk space reserved for a full disk
	{"ledger.db-seal", Made, false},
	{"ledger.db-shm", Made, false},
	{"ledger.db-wal", Made, false},
	{"lock", Made, false},
	{"locks", Made, true},
	{"manifests", Files, true},
	{"mcp", Files, true}, // approvals of MCP servers
	{"recordings", Files, true},
	{"replaced", Copies, true},
	{"replica", Made, true},   // state of continuous replication
	{"restored", Files, true}, // configurations restored from a backup
	{"restored.json", Made, false},
	{"rouse.sock", Made, false},
	{"rouse.yaml", Files, false},
	{"secrets.age", Secret, false},
	{"secrets.json", Secret, false},
	{"secrets.key", Secret, false},
	{"secrets.lock", Made, false},
	{"service", Made, true},       // description of the Windows task
	{"service.json", Made, false}, // record of the installed service
	{"service.log", Made, false},
	{"service.log.1", Made, false},
	{"sign-ins.age", Secret, false},
	{"sign-ins.json", Secret, false},
	{"sign-ins.key", Secret, false},
	{"sign-ins.lock", Made, false},
	{"skills", Files, true},
	{"storage", Storage, true},
	{"trusted-skills.json", Files, false},
}

// Parts returns all parts that rouse keeps in a home.
func Parts() []Part { return slices.Clone(parts) }

// Of returns the part that contains a slash-separated path below the home. It returns false if the
// path belongs to the owner.
func Of(rel string) (Part, bool) {
	first, _, _ := strings.Cut(rel, "/")
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == first })
	if i < 0 {
		return Part{}, false
	}
	return parts[i], true
}

// Kept reports whether a path in a home is used by rouse itself rather than by its owner or an
// agent. In an agent's directory, the workdir and the executor's HOME belong to the agent; the
// database and its copies do not.
func Kept(home, path string) bool {
	rel, ok := fspath.Rel(home, path)
	if !ok || rel == "." {
		return false
	}

	rel = filepath.ToSlash(rel)
	part, ok := Of(rel)
	return ok && (part.Kind != Agents || !Work(rel))
}

// Work reports whether a slash-separated path below a home is in a directory that an agent may
// write to: its workdir agents/NAME/work, or its executor's HOME.
func Work(rel string) bool { return ofAgent(rel, "work") || ProgramHome(rel) }

// ProgramHome reports whether a slash-separated path below a home is in the HOME of an agent's
// executor, agents/NAME/home. Agent programs keep their logins there.
func ProgramHome(rel string) bool { return ofAgent(rel, "home") }

// Clone reports whether a slash-separated path below a home is in the private clone of a run,
// checkouts/runs/RUN/work. The agent controls the file modes there.
func Clone(rel string) bool {
	elements := strings.SplitN(rel, "/", 5)
	return len(elements) >= 4 && elements[0] == "checkouts" && elements[1] == "runs" && elements[3] == "work"
}

func ofAgent(rel, folder string) bool {
	elements := strings.SplitN(rel, "/", 4)
	return len(elements) >= 3 && elements[0] == "agents" && elements[2] == folder
}

// Private reports whether a slash-separated path below a home must be accessible to the user only.
// That is everything rouse keeps, except skills, which keep the modes of their source, and the
// configuration.
func Private(rel string) bool {
	part, kept := Of(rel)
	return kept && !Work(rel) && !Clone(rel) && part.Name != "skills" && part.Name != "rouse.yaml"
}
