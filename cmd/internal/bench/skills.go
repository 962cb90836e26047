package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"rouse/skills"
)

const (
	benchSkillCount = 1000
	benchSkillBody  = 12 << 10 // bytes of instructions, as those of well-kept skills are
)

func benchSkills(_ context.Context, o Options) (_ []Figure, err error) {
	dir, err := os.MkdirTemp("", "rouse-bench-skills-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	if err := writeSkills(dir, benchSkillCount, benchSkillBody); err != nil {
		return nil, err
	}
	return measureSkills(o.Progress, dir, benchSkillCount, o.Passes)
}

// writeSkills makes skills as people write them: a head of two or more lines, instructions,
// and a file beside them.
func writeSkills(root string, n, body int) error {
	text := strings.Repeat("Read the table, add up its columns, and write what came of it. ", body/60+1)[:body]
	for i := range n {
		dir := filepath.Join(root, fmt.Sprintf("group-%d", i%20), fmt.Sprintf("skill-%d", i))
		head := fmt.Sprintf("---\nname: skill-%d\ndescription: Makes report number %[1]d of the tables in a folder. Use it when somebody asks for totals, averages or the %[1]d largest rows.\nlicense: MIT\n---\n", i)
		if err := os.MkdirAll(filepath.Join(dir, "references"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(head+text), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "references", "rules.md"), []byte("Round half up.\n"), 0o600); err != nil {
			return err
		}
	}

	return nil
}

// measureSkills alternates between finding skills and a bare walk that reads their files.
func measureSkills(progress io.Writer, root string, n, passes int) ([]Figure, error) {
	var found, bare, stamp, kept, index, search []float64
	for pass := range passes + 1 { // the first fills the caches of the system, and is not counted
		fmt.Fprintf(progress, "%s skills, pass %d of %d\n", thousands(n), pass, passes)
		walked, err := timed(func() error { return bareSkills(root, n) })
		if err != nil {
			return nil, err
		}

		before := liveBytes()
		var all *skills.Catalog
		discovered, err := timed(func() error {
			all = skills.Discover(skills.Root{Path: root, Source: "bench", Trusted: true})
			if got := len(all.Skills()); got != n || len(all.Problems()) > 0 {
				return fmt.Errorf("%d skills were found of %d: %v", got, n, all.Problems())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}

		after := liveBytes()
		stamped, err := timed(func() error { skills.Fingerprint(root); return nil })
		if err != nil {
			return nil, err
		}

		var finder *skills.Finder
		built, err := timed(func() error {
			var entries []skills.Entry
			for _, s := range all.Skills() {
				entries = append(entries, s.Entry())
			}
			finder = skills.NewFinder(entries)
			return nil
		})
		if err != nil {
			return nil, err
		}

		searched, err := timed(func() error {
			// A search that finds the wrong skill would be fast for nothing.
			if hits := finder.Search("report of the 77 largest rows", 10); len(hits) == 0 || hits[0].Name != "skill-77" {
				return fmt.Errorf("the search found %v", hits)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}

		if runtime.KeepAlive(all); pass > 0 {
			found, bare, stamp = append(found, discovered), append(bare, walked), append(stamp, stamped)
			kept, index, search = append(kept, float64(after-before)/float64(n)), append(index, built), append(search, searched)
		}
	}

	of := fmt.Sprintf(", %s skills", thousands(n))
	return []Figure{
		against("finding"+of, "ms", "a bare walk and read", 2, found, bare),
		against("asking whether any changed"+of, "ms", "a bare walk and read", 2, stamp, bare),
		below("memory of one", "bytes", 4096, kept),
		below("index of words"+of, "ms", 100, index),
		below("a search in it", "ms", 10, search),
	}, nil
}

// below holds a figure to a goal of its own.
func below(name, unit string, most float64, values []float64) Figure {
	v := median(values)
	return Figure{Name: name, Value: v, Unit: unit, Goal: fmt.Sprintf("≤ %g", most), Met: v <= most}
}

// timed is how long something takes, in milliseconds.
func timed(do func() error) (float64, error) {
	runtime.GC()
	start := time.Now()
	err := do()
	return float64(time.Since(start).Microseconds()) / 1000, err
}

// bareSkills walks and reads the same files, whole, and does nothing with them.
func bareSkills(root string, n int) error {
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "SKILL.md" {
			return err
		}
		n--
		_, err = os.ReadFile(path)
		return err
	})
	if err == nil && n != 0 {
		err = fmt.Errorf("%d files were not found", n)
	}

	return err
}
