package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The program has less of its file mapped, and goes on as before.
func TestReleaseProgramPages(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}

	before := resident(t, program)
	if err := releaseProgramPages(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t, program); before == 0 || after >= before {
		t.Errorf("%d KiB of the program were mapped, and %d are", before, after)
	}
}

// What was written into a private mapping before it was protected, as a loader does, stays; what is as in the file goes.
func TestReleasePages(t *testing.T) {
	text := strings.Repeat("x", 4*os.Getpagesize())
	for name, write := range map[string]func(data []byte){
		"unchanged":          func([]byte) {},
		"written":            func(data []byte) { data[os.Getpagesize()] = 'w' },
		"written like it is": func(data []byte) { data[0] = 'x' },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a file")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()

			data, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := unix.Munmap(data); err != nil {
					t.Error(err)
				}
			}()
			write(data)
			if err := unix.Mprotect(data, unix.PROT_READ); err != nil {
				t.Fatal(err)
			}

			want := string(data) // which also maps all of it
			if err := releasePages(path); err != nil {
				t.Fatal(err)
			}
			if left := resident(t, path); (left == 0) != (name == "unchanged") {
				t.Errorf("%d KiB are mapped", left)
			}
			if string(data) != want {
				t.Error("it is not what was there before")
			}
		})
	}
}

// Only what cannot be written, is not shared, and is of the program itself without a page of its own, in memory or moved out of it, may go.
func TestUnchangedMappings(t *testing.T) {
	const sizes = "Size: 4 kB\nRss: 4 kB\nAnonymous: 0 kB\nSwap: 0 kB\nVmFlags: rd mr mw me\n"
	own, swapped := strings.Replace(sizes, "Anonymous: 0", "Anonymous: 4", 1), strings.Replace(sizes, "Swap: 0", "Swap: 4", 1)
	smaps := strings.Join([]string{
		"00010000-00020000 r-xp 00000000 fe:00 12                                 /opt/a program (deleted)\n" + sizes,
		"00020000-00030000 r--p 00000000 fe:00 12                                 /opt/a program (deleted)\n" + sizes,
		"00030000-00040000 r--p 00000000 fe:00 12                                 /opt/a program (deleted)\n" + own,
		"00040000-00050000 r--p 00000000 fe:00 12                                 /opt/a program (deleted)\n" + swapped,
		"00050000-00060000 rw-p 00000000 fe:00 12                                 /opt/a program (deleted)\n" + sizes,
		"00060000-00070000 r--s 00000000 fe:00 12                                 /opt/a program (deleted)\n" + sizes,
		"00070000-00080000 r--p 00000000 fe:00 13                                 /opt/a program\n" + sizes,
		"00080000-00090000 r--p 00000000 fe:00 12                                 /opt/a program (deleted)\nRss: 4 kB\nSwap: 0 kB\n",
		"00090000-000a0000 r--p 00000000 00:00 0 \n" + sizes,
	}, "")

	found, err := unchangedMappings(strings.NewReader(smaps), "/opt/a program (deleted)")
	if want := []mapping{{0x10000, 0x20000}, {0x20000, 0x30000}}; err != nil || len(found) != 2 || found[0] != want[0] || found[1] != want[1] {
		t.Errorf("%x, %v", found, err)
	}
}

// resident is how much of a file this process has mapped now, in KiB.
func resident(t *testing.T, file string) (kib int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(" "+file)+`\nSize:.*\n(?:.*PageSize:.*\n)*Rss: +(\d+) kB`).FindAllSubmatch(smaps, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		kib += n
	}
	return kib
}
