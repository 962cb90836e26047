package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// templ writes no space between what stands before a component in its line and the component: "run 4 8 min ago" was shown as
// "run 48 min ago". A space is written as { " " }, in a line of its own.
func TestSpacesBeforeComponents(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.templ")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	lost := regexp.MustCompile(`(?m)^.*[>}] +@[a-z].*$`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lost.FindAllString(string(source), -1) {
			t.Errorf("%s: the space before the component is not shown: %s", file, line)
		}
	}
}
