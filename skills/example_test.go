package skills_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"rouse/skills"
)

func Example() {
	home, err := os.MkdirTemp("", "skills")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)

	dir := filepath.Join(home, "csv-report")
	if err := os.Mkdir(dir, 0o755); err != nil {
		log.Fatal(err)
	}

	text := "---\nname: csv-report\ndescription: Sums up statements.\nauthor: me\n---\nAdd the rows up.\n"
	if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}

	catalog := skills.Discover(skills.Root{Path: home, Source: "user", Trusted: true})
	for _, s := range catalog.Skills() {
		instructions, err := s.Instructions()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n%s\n", s.Name, s.Description, instructions)
	}

	for _, p := range catalog.Problems() {
		fmt.Println(p.Line, p.Rule)
	}
	// Output:
	// csv-report: Sums up statements.
	// Add the rows up.
	// 4 field-unknown
}

func ExampleValidate() {
	for _, p := range skills.Validate("no/such/skill") {
		fmt.Println(p.Rule)
	}
	// Output: path-missing
}

func ExampleSearch() {
	entries := []skills.Entry{
		{ID: "skill/pdf-tools", Name: "pdf-tools", Description: "Fills PDF forms."},
		{ID: "tool/db_query", Name: "db_query", Description: "Runs SQL."},
	}
	for _, hit := range skills.Search("filling a form", entries, 5) {
		fmt.Println(hit.ID)
	}
	// Output: skill/pdf-tools
}
