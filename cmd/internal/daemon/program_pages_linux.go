package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgramPages unmaps the pages of the program's own file. A start goes once through most of the program: each of 400 packages has
// something to set up, and the kernel maps 64 KiB and more around every byte that is touched. Of these 40 MiB an idle daemon needs a quarter, and it
// gets them back from the system's own memory as it touches them: nothing is read from the disk for that.
func releaseProgramPages() error {
	program, err := os.Readlink("/proc/self/exe") // as the kernel names it below, also once it was replaced or moved
	if err != nil {
		return err
	}
	return releasePages(program)
}

// releasePages unmaps the pages of a file. A page of which this process has a version of its own would be lost with that, so
// that only mappings without any such page are touched.
func releasePages(file string) error {
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer smaps.Close()

	mappings, err := unchangedMappings(smaps, file)
	for _, m := range mappings {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, os.NewSyscallError("madvise", errno))
		}
	}
	return err
}

// mapping is a stretch of addresses.
type mapping struct{ start, end uintptr }

// unchangedMappings are those of a file, in a text like /proc/self/smaps, that cannot be written and of which each page is as in the file. That
// nothing can be written does not say so: a loader writes addresses into some mappings before it protects them, and a debugger breakpoints into the code.
func unchangedMappings(smaps io.Reader, file string) (found []mapping, err error) {
	var at mapping
	var protected, own bool // at is of the file, and cannot be written; some of it was all the same
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "Anonymous:":
			own = !isNone(value)
		case "Swap:": // what was written, and then moved out of memory; this line comes after the other
			if protected && !own && isNone(value) {
				found = append(found, at)
			}
		default:
			if strings.HasSuffix(key, ":") {
				continue
			}
			if at, protected, err = readMapping(lines.Text(), file); err != nil {
				return nil, err
			}
			own = true // until it is said that it is not
		}
	}
	return found, lines.Err()
}

func isNone(size string) bool { return strings.TrimSpace(size) == "0 kB" }

// readMapping reads the line with which a mapping begins: addresses, what is allowed, offset, device, inode, and the path of the file.
func readMapping(line, file string) (m mapping, protected bool, err error) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return m, false, fmt.Errorf("not a mapping: %q", line)
	}

	from, to, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, strconv.IntSize)
	end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
	allowed, path := fields[1], strings.TrimLeft(fields[5], " ")
	return mapping{uintptr(start), uintptr(end)}, path == file && (allowed == "r-xp" || allowed == "r--p"), errors.Join(err, err2)
}
