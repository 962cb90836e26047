//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// process is one process of this machine.
type process struct {
	pid, parent, threads int
	state                byte
	memory               int64 // bytes that are resident, shared ones included
	depth                int   // generations below the root of its tree
}

// processes lists all processes that are visible. One that ends in the meantime may be missing.
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

	// The name in parentheses may contain anything, parentheses and blanks too: the fields start after the
	// last one. proc_pid_stat(5) counts them from 1, and the first here is its third.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return process{}, false
	}

	field := func(n int) int {
		v, _ := strconv.Atoi(string(fields[n-3])) // the kernel writes nothing but numbers
		return v
	}
	return process{pid: pid, state: fields[0][0], parent: field(4), threads: field(20), memory: int64(field(24)) * int64(os.Getpagesize())}, true
}

// descendantsOf lists the living descendants of a process, without itself.
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
			// The listing is not a snapshot: with a PID reused meanwhile, it may contain a cycle.
			if p.pid == root {
				continue
			}

			p.depth = depth
			visit(p.pid, depth+1)
			// The dead are no longer running, but their children are visited all the same.
			if p.state != 'Z' && p.state != 'X' {
				out = append(out, p)
			}
		}
	}

	visit(root, 1)
	return out
}

// namesChildren reports whether the kernel lists the children of a thread (CONFIG_PROC_CHILDREN).
var namesChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// walkDescendants lists the living descendants of a process as descendantsOf does, from one to the next. It may miss one whose parent
// ends meanwhile, so it is for measuring, not for killing.
func walkDescendants(root int) (out []process) {
	seen := map[int]bool{root: true} // a PID that is used again could be its own ancestor
	var visit func(pid, depth int)
	visit = func(pid, depth int) {
		for _, child := range childrenOf(pid) {
			p, ok := readProcess(child)
			if !ok || seen[child] {
				continue
			}

			seen[child], p.depth = true, depth
			visit(child, depth+1)
			if p.state != 'Z' && p.state != 'X' {
				out = append(out, p)
			}
		}
	}

	visit(root, 1)
	return out
}

// childrenOf lists the children of all threads of a process.
func childrenOf(pid int) (out []int) {
	tasks := filepath.Join("/proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // it is gone
	}

	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		if err != nil {
			continue
		}
		for _, field := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// proportionalMemory is the memory of a process, with shared pages divided by the number of sharers (PSS).
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
