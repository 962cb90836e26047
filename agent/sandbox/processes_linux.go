//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// process is one of this machine.
type process struct {
	pid, parent, threads int
	state                byte
	memory               int64 // bytes that are resident, shared ones included
	depth                int   // generations below the root of its tree
}

// processes are all that can be seen. One that ends meanwhile may be missing.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}

	out := make([]process, 0, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			out = append(out, p)
		}
	}

	return out
}

func readProcess(pid int) (process, bool) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return process{}, false
	}

	// The name in parentheses may hold anything; proc_pid_stat(5) counts fields from 1.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return process{}, false
	}

	field := func(n int) int {
		v, _ := strconv.Atoi(string(fields[n-3])) // the kernel writes numbers
		return v
	}
	return process{pid: pid, state: fields[0][0], parent: field(4), threads: field(20), memory: int64(field(24)) * int64(os.Getpagesize())}, true
}

// descendantsOf is all that descends from a process and lives, itself not included.
func descendantsOf(root int) []process {
	return liveDescendants(processes(), root)
}

func liveDescendants(all []process, root int) []process {
	children := map[int][]process{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}

	var out []process
	var visit func(pid, depth int)
	visit = func(pid, depth int) {
		for _, p := range children[pid] {
			if p.pid == root {
				continue
			}

			p.depth = depth
			visit(p.pid, depth+1)
			if p.state != 'Z' && p.state != 'X' {
				out = append(out, p)
			}
		}
	}

	visit(root, 1)
	return out
}

// proportionalMemory is the memory of a process with what it shares divided among those who share it.
func proportionalMemory(p process) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "smaps_rollup"))
	if err != nil {
		return p.memory
	}

	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			if kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64); err == nil {
				return kb << 10
			}
		}
	}

	return p.memory
}
