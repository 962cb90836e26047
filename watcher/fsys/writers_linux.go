package fsys

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// writersAge is the time for which a list of open files is reused. Creating the list reads all of
// /proc.
const writersAge = 5 * time.Second

// Writers lists the programs that have files open for writing, as far as this user may see them.
type Writers struct {
	made time.Time
	by   map[string]string
}

// Of returns the program that has a file open, such as ": vim (process 12)". It returns "" if the
// program is unknown.
func (w *Writers) Of(path string, now time.Time) string {
	if now.Sub(w.made) > writersAge {
		w.made, w.by = now, openFiles()
	}
	if by := w.by[path]; by != "" {
		return ": " + by
	}
	return ""
}

func openFiles() map[string]string {
	out := map[string]string{}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // unreadable entries are skipped
	for _, link := range links {
		file, err := os.Readlink(link)
		if err != nil || !filepath.IsAbs(file) || !writes(link) {
			continue
		}

		process := filepath.Dir(filepath.Dir(link))
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		out[file] = fmt.Sprintf("%s (process %s)", text.OneLine(strings.TrimSpace(string(name))), filepath.Base(process))
	}
	return out
}

// writes reports whether a descriptor was opened for writing.
func writes(link string) bool {
	process, fd := filepath.Split(link)
	info, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Clean(process)), "fdinfo", fd))
	if err != nil {
		return false
	}

	_, rest, _ := strings.Cut(string(info), "flags:")
	flags, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 8, 64)
	return err == nil && flags&int64(os.O_WRONLY|os.O_RDWR) != 0
}
