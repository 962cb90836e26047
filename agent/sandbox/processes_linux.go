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
	memory               int64 // resident bytes, including shared memory
	depth                int   // generations below the root of its tree
}

// processes returns all visible processes. A process that ends in the meantime may be missing.
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

	// The name in parentheses may contain any characters, including parentheses and blanks. The
	// fields start after the last parenthesis. proc_pid_stat(5) counts from 1, and the first field
	// here is number 3.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return process{}, false
	}

	field := func(n int) int {
		v, _ := strconv.Atoi(string(fields[n-3])) // the kernel writes only numbers
		return v
	}
	return process{pid: pid, state: fields[0][0], parent: field(4), threads: field(20), memory: int64(field(24)) * int64(os.Getpagesize())}, true
}

// descendantsOf returns the living descendants of a process, without the process itself.
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
			// The listing is not a snapshot. If a PID was reused, it may contain a cycle.
			if p.pid == root {
				continue
			}

			p.depth = depth
			visit(p.pid, depth+1)
			// Dead processes are omitted, but their children are visited.
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

// walkDescendants returns the living descendants of a process like descendantsOf, by walking from
// parents to children. It may miss a process if its parent ends meanwhile, so use it for measuring,
// not for killing.
func walkDescendants(root int) (out []process) {
	seen := map[int]bool{root: true} // a reused PID could be its own ancestor
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

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) (out []int) {
	tasks := filepath.Join("/proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // the process has ended
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

// proportionalMemory returns the memory of a process, with shared pages divided by the number of
// sharing processes (PSS).
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
