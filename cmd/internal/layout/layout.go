// Package layout knows what a home holds: one list, which whoever judges, mends or copies a home asks.
//
// # Design
//
// A part is a file or a folder directly below the home that rouse makes. Whatever else lies there is its owner's: a
// configuration, prompts, the workdir of an agent. What becomes of a part in a backup follows from its kind alone, so
// that a part which is added here is in the backups too, or says why it is not.
package layout

import (
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// Kind is what a part holds, and so what a backup does with it.
type Kind string

// The kinds.
const (
	Database Kind = "database" // SQLite's, which is copied while it is written
	Agents   Kind = "agents"   // a folder for each agent: its database, what belongs to that, and its files
	Storage  Kind = "storage"  // a folder for each agent with databases
	Files    Kind = "files"    // copied as they are
	Secret   Kind = "secret"   // copied where its owner says so
	Copies   Kind = "copies"   // of databases: a backup has these themselves
	Made     Kind = "made"     // of a process, or made again: of no use to anybody later
)

// Part is what rouse keeps under one name in a home.
type Part struct {
	Name   string
	Kind   Kind
	Folder bool
}

var parts = []Part{
	{"agents", Agents, true},
	{"backups", Copies, true},
	{"before", Files, true},    // what files were before agent programs that have not ended
	{"blobs", Files, true},     // large values of the ledger, by content
	{"calendars", Files, true}, // copies of those that are fetched
	{"checkouts", Made, true},  // private clones; their branches are in repositories of the owner
	{"commands", Made, true},
	{"config-path", Made, false}, // a backup's manifest names the configuration
	{"dashboard", Secret, true},
	{"engine", Made, false}, // where in PostgreSQL the ledger is
	{"holder.json", Made, false},
	{"last-backup.json", Made, false},
	{"ledger-id", Made, false}, // the ledger says it
	{"ledger.db", Database, false},
	{"ledger.db-reserve", Made, false}, // room for the time when the disk is full
	{"ledger.db-seal", Made, false},
	{"ledger.db-shm", Made, false},
	{"ledger.db-wal", Made, false},
	{"lock", Made, false},
	{"locks", Made, true},
	{"manifests", Files, true},
	{"mcp", Files, true}, // what is approved of MCP servers
	{"recordings", Files, true},
	{"replaced", Copies, true},
	{"replica", Made, true},   // what of the home is shipped, and to where
	{"restored", Files, true}, // configurations that a backup brought along
	{"restored.json", Made, false},
	{"rouse.sock", Made, false},
	{"rouse.yaml", Files, false},
	{"secrets.age", Secret, false},
	{"secrets.json", Secret, false},
	{"secrets.key", Secret, false},
	{"secrets.lock", Made, false},
	{"service", Made, true},       // the task of Windows
	{"service.json", Made, false}, // of the machine's service
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

// Parts are all that rouse keeps in a home.
func Parts() []Part { return slices.Clone(parts) }

// Of is the part that a path below a home, with slashes, is or lies in. false: its owner's.
func Of(rel string) (Part, bool) {
	first, _, _ := strings.Cut(rel, "/")
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == first })
	if i < 0 {
		return Part{}, false
	}
	return parts[i], true
}

// Kept says whether a path in a home is one that rouse itself uses, and not its owner's or an agent's. Of an agent's
// folder the workdir, and the HOME of its executor, are the agent's: beside them are its database and the copies of that.
func Kept(home, path string) bool {
	rel, ok := fspath.Rel(home, path)
	if !ok || rel == "." {
		return false
	}

	rel = filepath.ToSlash(rel)
	part, ok := Of(rel)
	return ok && (part.Kind != Agents || !Work(rel))
}

// Work says whether a path below a home, with slashes, is in a folder that rouse made for an agent to write in: its workdir
// agents/NAME/work, or the HOME of its executor.
func Work(rel string) bool { return ofAgent(rel, "work") || ProgramHome(rel) }

// ProgramHome says whether a path below a home, with slashes, is in the HOME of an agent's executor, agents/NAME/home. Such programs
// keep their logins there.
func ProgramHome(rel string) bool { return ofAgent(rel, "home") }

// Clone says whether a path below a home, with slashes, is in the private clone of a run, checkouts/runs/RUN/work: its agent decides on the
// modes there.
func Clone(rel string) bool {
	elements := strings.SplitN(rel, "/", 5)
	return len(elements) >= 4 && elements[0] == "checkouts" && elements[1] == "runs" && elements[3] == "work"
}

func ofAgent(rel, folder string) bool {
	elements := strings.SplitN(rel, "/", 4)
	return len(elements) >= 3 && elements[0] == "agents" && elements[2] == folder
}

// Private says whether a path below a home, with slashes, is its user's alone: all that rouse keeps, but for skills, which have the
// modes of their source, and its configuration.
func Private(rel string) bool {
	part, kept := Of(rel)
	return kept && !Work(rel) && !Clone(rel) && part.Name != "skills" && part.Name != "rouse.yaml"
}
