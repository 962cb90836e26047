// Package powercut simulates, for tests, the states that a power cut can leave in a folder.
//
// Record traces the system calls of a program: its writes, syncs, renames and removals in the
// folder, and its output. Nothing in the program is replaced, so the trace includes SQLite.
//
// State creates a possible state of the folder after a power cut. Synced data is complete. Of
// unsynced data, each write or each sector of 512 bytes may be missing, in any order. As in
// journaling file systems, the changes of names in a folder are complete up to one of them. A file
// written through a memory mapping has arbitrary content. Disks that lose synced data or tear
// sectors are not simulated.
package powercut

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// sector is the unit that disks write atomically, in bytes.
const sector = 512

// Trace is the sequence of changes that a program made to a folder.
type Trace struct {
	root  string
	began map[string][]byte // initial files, by path within the folder
	dirs  []string          // initial folders
	ops   []op
}

// Options configures Record.
type Options struct {
	Root    string   // folder to record
	Program string   // absolute path
	Env     []string // environment of the program, NAME=VALUE

	// FailSync is called for each sync with the path within Root. If it returns true, the program
	// gets EIO and the trace does not contain the sync. Optional.
	FailSync func(path string) bool
}

type kind int

const (
	opName      kind = iota // file gets a name
	opUnname                // name is removed
	opMkdir                 // folder is created
	opRmdir                 // folder is removed
	opWrite                 // data is written to a file
	opResize                // file is truncated or extended
	opMap                   // file is mapped for writing
	opSync                  // file is synced
	opSyncNames             // names in a folder are synced
	opSay
)

// op is one step of a trace.
type op struct {
	kind kind
	file int    // unique number of the file, regardless of its name
	path string // path within the folder
	old  string // previous name of a renamed file
	off  int64  // offset of opWrite, or size of opResize
	data []byte
	// began is the number of steps at the start of a sync. The sync does not cover later steps.
	began int
}

// Len returns the number of steps. A cut is a number of completed steps.
func (t *Trace) Len() int { return len(t.ops) }

// Said returns the writes to standard output before a cut.
func (t *Trace) Said(cut int) []string {
	var out []string
	for _, o := range t.ops[:cut] {
		if o.kind == opSay {
			out = append(out, string(o.data))
		}
	}
	return out
}

// Syncs returns the number of syncs of files and folders.
func (t *Trace) Syncs() (n int) {
	for _, o := range t.ops {
		if o.kind == opSync || o.kind == opSyncNames {
			n++
		}
	}
	return n
}

// State writes a possible state after a cut to the empty folder dir. r makes the random choices.
func (t *Trace) State(cut int, r *rand.Rand, dir string) error {
	s := t.state(cut, r)
	for _, d := range slices.Sorted(maps.Keys(s.dirs)) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}

	for path, file := range s.names {
		err := os.WriteFile(filepath.Join(dir, path), s.content(file), 0o600)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its folder is missing, so the file is, too
			return err
		}
	}
	return nil
}

type state struct {
	r      *rand.Rand
	names  map[string]int
	dirs   map[string]bool
	data   map[int][]byte
	mapped map[int]bool
}

// durable holds, for each file and each folder's names, the step up to which they are on disk.
type durable struct {
	files map[int]int
	names map[string]int
}

func (t *Trace) durableAt(cut int) durable {
	d := durable{map[int]int{}, map[string]int{}}
	for _, o := range t.ops[:cut] {
		switch o.kind {
		case opSync:
			d.files[o.file] = max(d.files[o.file], o.began)
		case opSyncNames:
			d.names[o.path] = max(d.names[o.path], o.began)
		}
	}
	return d
}

func (t *Trace) state(cut int, r *rand.Rand) *state {
	s := &state{r: r, names: map[string]int{}, dirs: map[string]bool{}, data: map[int][]byte{}, mapped: map[int]bool{}}
	for _, d := range t.dirs {
		s.dirs[d] = true
	}
	for i, path := range slices.Sorted(maps.Keys(t.began)) {
		s.names[path], s.data[i] = i, slices.Clone(t.began[path])
	}

	// From no unsynced data to all of it, as after a kill.
	likely := []float64{0, 0.2, 0.5, 0.8, 1}[r.IntN(5)]
	torn := r.IntN(2) == 0
	safe := t.durableAt(cut)
	namesUntil := map[string]int{}

	for i, o := range t.ops[:cut] {
		switch o.kind {
		case opName, opUnname, opMkdir, opRmdir:
			dir := filepath.Dir(o.path)
			until, ok := namesUntil[dir]
			if !ok {
				until = max(safe.names[dir], t.lastOf(dir, cut, likely, r))
				namesUntil[dir] = until
			}
			if i < until {
				s.rename(o)
			}
		case opMap:
			s.mapped[o.file] = true
		case opWrite, opResize:
			switch {
			case i < safe.files[o.file]:
				s.write(o, 1)
			case torn:
				s.write(o, likely)
			case r.Float64() < likely:
				s.write(o, 1)
			}
		}
	}
	return s
}

// lastOf chooses the step up to which the names of a folder are on disk.
func (t *Trace) lastOf(dir string, cut int, likely float64, r *rand.Rand) int {
	until := 0
	for i, o := range t.ops[:cut] {
		if o.kind <= opRmdir && filepath.Dir(o.path) == dir {
			if r.Float64() >= likely {
				return until
			}
			until = i + 1
		}
	}
	return until
}

func (s *state) rename(o op) {
	switch o.kind {
	case opName:
		delete(s.names, o.old)
		s.names[o.path] = o.file
	case opUnname:
		delete(s.names, o.path)
	case opMkdir:
		s.dirs[o.path] = true
	case opRmdir:
		delete(s.dirs, o.path)
	}
}

// write applies a write to the file, keeping each sector with the given probability.
func (s *state) write(o op, likely float64) {
	if o.kind == opResize {
		if s.r.Float64() < likely {
			s.data[o.file] = resized(s.data[o.file], o.off)
		}
		return
	}

	for at := o.off; at < o.off+int64(len(o.data)); {
		end := min((at/sector+1)*sector, o.off+int64(len(o.data)))
		if s.r.Float64() < likely {
			data := s.data[o.file]
			if int64(len(data)) < end {
				data = resized(data, end)
			}
			copy(data[at:end], o.data[at-o.off:end-o.off])
			s.data[o.file] = data
		}
		at = end
	}
}

func resized(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size:size] // hidden data must not reappear
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

// content returns the content of a file.
func (s *state) content(file int) []byte {
	data := s.data[file]
	if !s.mapped[file] {
		return data
	}

	data = slices.Clone(data)
	if s.r.IntN(2) == 0 {
		for i := range data {
			data[i] = byte(s.r.Uint32())
		}
	}
	return data
}
