package file

// examples are the arguments of a typical call of each tool.
var examples = map[string]string{
	"file_read":              `{"path":"report.md"}`,
	"file_write":             `{"path":"out/report.md","content":"# Report\n"}`,
	"file_edit":              `{"path":"report.md","old_string":"draft","new_string":"final"}`,
	"file_move":              `{"from":"inbox/scan.pdf","to":"sorted/2026/"}`,
	"file_copy":              `{"from":"report.md","to":"archive/report.md"}`,
	"file_delete":            `{"path":"old/report.md"}`,
	"dir_create":             `{"path":"sorted/2026"}`,
	"file_search":            `{"pattern":"**/*.csv","target":"files"}`,
	"file_operation_history": `{"path":"report.md"}`,
	"file_undo":              `{"operation_id":"12"}`,
	"share_artifact":         `{"path":"out/report.md","description":"The report of the week"}`,
	"read_file":              `{"path":"report.md","limit":50}`,
	"write_file":             `{"path":"out/report.md","content":"# Report\n"}`,
	"edit_file":              `{"path":"report.md","old_text":"draft","new_text":"final"}`,
	"list_files":             `{"pattern":"*.csv"}`,
	"search":                 `{"pattern":"total: [0-9]+","include":"*.md"}`,
}
