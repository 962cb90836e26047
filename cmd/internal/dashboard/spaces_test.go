package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// templ writes no space between text and a component on the same line, so that "run 4 8 min ago"
// becomes "run 48 min ago". A space must be written as { " " } on its own line.
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
