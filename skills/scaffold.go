package skills

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"rouse/internal/text"
)

//go:embed scaffold
var scaffold embed.FS

// CasesFolder is the folder for test cases inside an executable skill.
const CasesFolder = "tests"

// typesFile declares the module API for editors.
const typesFile = "host.d.ts"

// Scaffold describes a new executable skill.
type Scaffold struct {
	Name        string // must be a slug
	Mode        Mode
	Author      string
	Description string // optional; the default describes the sample
}

// sample describes the sample program of a mode.
type sample struct {
	Description, Input, InputMeans, Result, Asks string
	output                                       string // properties of the output schema, as JSON
	required                                     []string
}

var samples = map[Mode]sample{
	ModeDeclarative: {
		Description: "Counts the words, lines and characters of a text.",
		Input:       "text", InputMeans: "what is counted",
		Result:   "`words`, `lines` and `characters`, all numbers.",
		Asks:     "Nothing.",
		output:   `{"words": {"type": "integer"}, "lines": {"type": "integer"}, "characters": {"type": "integer"}}`,
		required: []string{"words", "lines", "characters"},
	},
	ModeFlow: {
		Description: "Sums a text up, asks a person what to change, and changes it.",
		Input:       "text", InputMeans: "what is summed up",
		Result:   "`summary`, a text, and `changed`, whether a person had it changed.",
		Asks:     "A model, for the purpose `summary`; and a person, once.",
		output:   `{"summary": {"type": "string"}, "changed": {"type": "boolean"}}`,
		required: []string{"summary", "changed"},
	},
	ModeAgentic: {
		Description: "Splits a topic into questions, answers them, and writes a report.",
		Input:       "topic", InputMeans: "what the report is about",
		Result:   "`artifactId` of the report, and how many questions are `answered` and `open`. The report itself is an artifact of the workspace.",
		Asks:     "A model, for the purpose `research`; and a workspace, in which it keeps what is done.",
		output:   `{"artifactId": {"type": "string"}, "answered": {"type": "integer"}, "open": {"type": "integer"}}`,
		required: []string{"artifactId", "answered", "open"},
	},
}

// ErrExists is returned if the folder of a new skill already exists.
var ErrExists = errors.New("is there already")

// Write creates a folder with the skill's name in dir and returns its path. The new skill is valid
// and contains a working sample. Write returns ErrExists if the folder already exists.
func (s Scaffold) Write(dir string) (string, error) {
	if !slug.MatchString(s.Name) {
		return "", fmt.Errorf("%q cannot be the name of a skill; write small letters, digits and hyphens, and begin with a letter", s.Name)
	}
	does, ok := samples[s.Mode]
	if !ok {
		return "", fmt.Errorf("the mode %s", noneOf(string(s.Mode), text.Strings(Modes())))
	}
	if s.Description != "" {
		does.Description = s.Description
	}

	files, err := s.files(does)
	if err != nil {
		return "", err
	}

	folder := filepath.Join(dir, s.Name)
	if err := os.Mkdir(folder, 0o755); errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s %w; choose another name, or remove it", folder, ErrExists)
	} else if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(folder, CasesFolder), 0o755); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil { //nolint:gosec // to be published
			return "", err
		}
	}

	return folder, nil
}

// files returns the files of the skill by name.
func (s Scaffold) files(does sample) (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, from := range map[string]string{moduleFile: string(s.Mode) + ".ts", CasesFolder + "/example.json": string(s.Mode) + ".json", typesFile: typesFile} {
		content, err := scaffold.ReadFile("scaffold/" + from)
		if err != nil {
			return nil, err
		}
		out[name] = content
	}

	docs, err := template.ParseFS(scaffold, "scaffold/docs.md")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := docs.Execute(&page, struct {
		Name string
		sample
	}{s.Name, does}); err != nil {
		return nil, err
	}

	manifest, err := json.MarshalIndent(s.manifest(does), "", "  ")
	if err != nil {
		return nil, err
	}
	out[manifestFile], out[docsFile] = append(manifest, '\n'), page.Bytes()
	return out, nil
}

// manifest returns a manifest that declares only what the sample of the mode needs.
func (s Scaffold) manifest(does sample) *Manifest {
	input, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{does.Input: map[string]string{"type": "string", "description": does.InputMeans}}, "required": []string{does.Input}})
	output, _ := json.Marshal(map[string]any{"type": "object", "properties": json.RawMessage(does.output), "required": does.required})
	m := &Manifest{
		Name: s.Name, Description: does.Description, Version: "0.1.0", Author: s.Author, SchemaVersion: SchemaVersion,
		Capabilities: []string{}, RequiredBindings: []Binding{}, Permissions: []Permission{}, InputSchema: input, OutputSchema: output,
		CompatibilityRequirements: []string{},
		Sandbox:                   SandboxRules{Isolation: defaultIsolation, MaxExecutionMS: DefaultMaxExecutionMS, MaxMemoryMB: DefaultMaxMemoryMB, AllowedGlobals: []string{}, NetworkRules: []NetworkRule{}},
		SupportedPlatforms:        []Platform{}, BridgeRequirement: BridgeNever, WorkspaceSupport: SupportNone, LongRunningSupport: SupportNone,
		ExecutionMode: s.Mode, AgenticConfig: &AgenticConfig{},
	}

	asksModel := func(purpose, kind, why string) {
		m.Permissions = []Permission{{Kind: PermissionLLM, Scope: purpose, Description: why}}
		m.LLMUsage = []LLMUsage{{PurposeID: purpose, Kind: kind, Description: why, EstimatedTokenBudget: 2000}}
	}
	version, most, budget := "1.0.0", 20, 10
	switch s.Mode {
	case ModeFlow:
		asksModel("summary", "summarization", "Sum the text up, and change the summary as its reader asks")
		m.UserInputSupport, m.LongRunningSupport, m.WorkspaceSupport, m.WorkspaceSchemaVersion = true, SupportOptional, SupportOptional, &version
	case ModeAgentic:
		asksModel("research", "generation", "Find questions, answer them, and write the report")
		m.LongRunningSupport, m.WorkspaceSupport, m.WorkspaceSchemaVersion = SupportOptional, SupportRequired, &version
		m.ArtifactVersioningSupport = true
		m.AgenticConfig = &AgenticConfig{Enabled: true, RequiresWorkspace: true, SupportsBackgroundExecution: true, SupportsRoleBasedExecution: true, MaxStepsPerRun: &most, DefaultStepBudget: &budget}
	}

	return m
}

// Modes returns the execution modes of skills.
func Modes() []Mode { return []Mode{ModeDeclarative, ModeFlow, ModeAgentic} }
