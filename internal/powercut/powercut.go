// Package powercut makes, for tests, what a power cut may leave of a folder.
//
// # Design
//
// Record runs a program and follows its system calls: what it writes, syncs, renames and removes in the folder, and what it
// says meanwhile. Nothing of the program is replaced, so that SQLite, the files beside it and the folders are seen alike.
//
// State is what the folder may be after a cut at some instant of that. What was synced is there. Of what was not, each write
// may be missing, and each sector of 512 bytes of it by itself, in any order; the changes of names in a folder are there up to
// one of them, as file systems with a journal have it. A file that was mapped into memory and written there holds anything.
//
// Not modelled: disks that lose what was synced, or that tear a sector.
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

// sector is what disks write whole, in bytes.
const sector = 512

// Trace is what a program did to a folder.
type Trace struct {
	root  string
	began map[string][]byte // files before the program began, by path within the folder
	dirs  []string          // folders before it began
	ops   []op
}

// Options say what is recorded.
type Options struct {
	Root    string   // the folder
	Program string   // absolute
	Env     []string // of the program, NAME=VALUE

	// FailSync, when set, is asked at each sync of a file or a folder, by its path within Root, and true has the program be told
	// that it failed: EIO, although all of it is done, as disks have it.
	FailSync func(path string) bool
}

type kind int

const (
	opName      kind = iota // a file gets a name
	opUnname                // a name is removed
	opMkdir                 // a folder is made
	opRmdir                 // an empty one is removed
	opWrite                 // data is written to a file
	opResize                // a file is cut, or made longer
	opMap                   // a file is mapped, to be written in memory
	opSync                  // a file is on disk
	opSyncNames             // the names in a folder are
	opSay
)

// op is one step of a trace.
type op struct {
	kind kind
	file int    // a number that no other file has, whatever its name
	path string // within the folder
	old  string // the name that a renamed file had
	off  int64  // of opWrite; the size, of opResize
	data []byte
	// began is how many steps there were when a sync was asked for: what came later need not be on disk.
	began int
}

// Len is the number of steps: a cut is behind so many of them.
func (t *Trace) Len() int { return len(t.ops) }

// Said is what the program had written to its standard output, each write by itself, before a cut.
func (t *Trace) Said(cut int) []string {
	var out []string
	for _, o := range t.ops[:cut] {
		if o.kind == opSay {
			out = append(out, string(o.data))
		}
	}
	return out
}

// Syncs is how often a file or a folder was synced.
func (t *Trace) Syncs() (n int) {
	for _, o := range t.ops {
		if o.kind == opSync || o.kind == opSyncNames {
			n++
		}
	}
	return n
}

// State writes to the empty folder dir what may be there after a cut, of which r decides.
func (t *Trace) State(cut int, r *rand.Rand, dir string) error {
	s := t.state(cut, r)
	for _, d := range slices.Sorted(maps.Keys(s.dirs)) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}

	for path, file := range s.names {
		err := os.WriteFile(filepath.Join(dir, path), s.content(file), 0o600)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its folder is not there: so neither is the file
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

// durable says up to which step a file, or the names of a folder, are on disk.
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

	// From nothing that was not synced to all of it, as after a kill.
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

// lastOf draws the step up to which the names of a folder are on disk.
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

// write has each sector of what is written reach the file, or not.
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
		return data[:size:size] // what lies behind must not come back
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

// content is what a file holds.
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
