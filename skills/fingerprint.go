package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Stamp is the same as long as a root holds the same skills, or is the same skill, by the
// names, sizes and times of their files. It reads none of them, and keeps to the bounds of Discover, so that it can be
// asked now and then whether it is time to look again.
func Stamp(root string) string {
	h := sha256.New()
	w := walker{catalog: &Catalog{}, root: Root{Path: root}, visited: map[string]bool{}}
	w.onSkill = func(dir string) {
		fmt.Fprintf(h, "%q", dir)
		for _, name := range append([]string{moduleFile}, fileNames...) {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				fmt.Fprintf(h, " %s %d %d", name, info.Size(), info.ModTime().UnixNano())
			}
		}
		fmt.Fprintln(h)
	}

	w.onSkill(root)
	w.walk()
	return hex.EncodeToString(h.Sum(nil))
}
