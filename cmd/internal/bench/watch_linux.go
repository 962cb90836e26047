package bench

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// benchInotify is what events are asked for: the same that fsnotify asks for.
const benchInotify = unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_MODIFY | unix.IN_MOVE_SELF | unix.IN_DELETE | unix.IN_DELETE_SELF

// armBare is how long raw inotify takes for the folders of a tree when they are known
// already, and when each has to be read to find those in it, as any watcher has to.
func armBare(root string, dirs []string) (known, found time.Duration, err error) {
	known, err = timeInotify(func(fd int) error {
		for _, dir := range dirs {
			if _, err := unix.InotifyAddWatch(fd, dir, benchInotify); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}

	found, err = timeInotify(func(fd int) error { return armTree(fd, root) })
	return known, found, err
}

func timeInotify(arm func(fd int) error) (time.Duration, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)

	begin := time.Now()
	err = arm(fd)
	return time.Since(begin), err
}

func armTree(fd int, dir string) error {
	if _, err := unix.InotifyAddWatch(fd, dir, benchInotify); err != nil {
		return err
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if e.IsDir() {
			if err := armTree(fd, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}

	return nil
}

// walkBare reads the names of a folder and the stamps of its files with nothing but
// getdents and fstatat, four at a time, and keeps nothing; it says how many there are.
func walkBare(dir string) (took time.Duration, files int, err error) {
	begin := time.Now()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)

	pages := make(chan []string, 64)
	var group sync.WaitGroup
	counts := make([]int, 4)
	for i := range counts {
		group.Go(func() {
			var st unix.Stat_t
			for names := range pages {
				for _, name := range names {
					if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
						counts[i]++
					}
				}
			}
		})
	}

	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Getdents(fd, buffer)
		if n <= 0 || err != nil {
			close(pages)
			group.Wait()
			for _, c := range counts {
				files += c
			}
			return time.Since(begin), files, err
		}

		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		pages <- names
	}
}

// suspend stops a process without ending it; goOn continues it.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func goOn(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
