package file_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestLinkSwaps swaps a folder repeatedly for a link that leads out of the granted folder. The
// tools must not read, search, edit or write behind the link (OSA-30). ROUSE_TEST_RACES is the
// number of rounds.
func TestLinkSwaps(t *testing.T) {
	t.Parallel()
	races := 20
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_RACES")); err == nil {
		races = n
	}

	dir, _ := setup(t, map[string]string{"outside/a.txt": "SECRET", "work/sub/a.txt": "open"})
	if err := os.Symlink("x", filepath.Join(dir, "link")); err != nil {
		t.Skip("symbolic links cannot be made here")
	}

	call := on(t, filepath.Join(dir, "work"))
	sub, kept := filepath.Join(dir, "work", "sub"), filepath.Join(dir, "work", "kept")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}

			_ = os.Rename(sub, kept)
			_ = os.Symlink("../outside", sub)
			_ = os.Remove(sub)
			_ = os.Rename(kept, sub)
		}
	})

	good := 0
	for i := range races {
		for name, args := range map[string]map[string]any{
			"file_read": {"path": "sub/a.txt"}, "file_search": {"pattern": "secret", "path": []string{".", "sub"}[i%2]}, "list_files": {"path": "sub"},
			"file_write": {"path": "sub/a.txt", "content": "open"}, "write_file": {"path": "sub/" + strconv.Itoa(i), "content": "x"},
			"file_edit": {"path": "sub/a.txt", "old_string": "SECRET", "new_string": "taken"}, "file_undo": {},
			"file_copy": {"from": "sub/a.txt", "to": "copy.txt", "overwrite": true}, "file_move": {"from": "copy.txt", "to": "sub/moved.txt", "overwrite": true},
		} {
			e, got := call(name, args)
			copied, _ := os.ReadFile(filepath.Join(dir, "work", "copy.txt"))
			if strings.Contains(string(e.Result)+string(copied), "SECRET") {
				t.Fatalf("%s got out: %s", name, e.Result)
			}
			if name == "file_search" && e.OK && got["total_matches"] != 0.0 {
				t.Fatalf("the search got out: %v", got)
			}

			if e.OK {
				good++
			}
		}
	}

	close(stop)
	swapping.Wait()
	left, err := os.ReadDir(filepath.Join(dir, "outside"))
	text, err2 := os.ReadFile(filepath.Join(dir, "outside", "a.txt"))
	if err != nil || err2 != nil || len(left) != 1 || string(text) != "SECRET" {
		t.Errorf("outside there is %v, %q (%v, %v)", left, text, err, err2)
	}
	if good == 0 {
		t.Error("nothing ever worked")
	}
}

// TestLinkSwapsWithin swaps a folder for a link to a protected folder inside the workdir. Neither a
// write nor an undo may create a file there.
func TestLinkSwapsWithin(t *testing.T) {
	t.Parallel()
	dir, _ := setup(t, map[string]string{"work/repo/.git/HEAD": "ref: refs/heads/main", "work/repo/.git/info/exclude": "", "work/sub/a.txt": "open"})
	if err := os.Symlink("x", filepath.Join(dir, "link")); err != nil {
		t.Skip("symbolic links cannot be made here")
	}

	call := on(t, filepath.Join(dir, "work"))
	sub, kept := filepath.Join(dir, "work", "sub"), filepath.Join(dir, "work", "kept")
	swaps := make(chan int) // number of swaps per round, varied to hit calls at different times
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := range swaps {
			for range n {
				_ = os.Rename(sub, kept)
				_ = os.Symlink("repo/.git/info", sub)
				_ = os.Remove(sub)
				_ = os.Rename(kept, sub)
			}
		}
	})

	good := 0
	rounds := 200
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_RACES")); err == nil {
		rounds = n
	}
	for i := range rounds {
		swaps <- i % 50
		if e, _ := call("file_write", map[string]any{"path": "sub/" + strconv.Itoa(i), "content": "x"}); e.OK {
			good++
		}
		if e, _ := call("file_undo", map[string]any{}); e.OK {
			good++
		}
	}
	close(swaps)
	swapping.Wait()

	left, err := os.ReadDir(filepath.Join(dir, "work/repo/.git/info"))
	if err != nil || len(left) != 1 {
		t.Errorf("in the repository there is %v, %v", left, err)
	}
	if good == 0 {
		t.Error("nothing ever worked")
	}
}
