// Package skills discovers, validates, lists and loads skills. A skill is a directory with
// instructions for an agent (SKILL.md), a program (manifest.json and module.ts), or both.
//
// Discovery reads only the frontmatter of SKILL.md and the manifest. Instructions are read on
// demand, and other files are listed but not read. Load is lenient: it accepts existing skills and
// reports violations as warnings. Validate is strict: it checks a skill against the AgentSkills
// standard and reports every violation. Manifests are always parsed strictly, because a program
// gets only the permissions that it declares. All of them report Problems.
//
// A Catalog holds the skills of several roots. A later root overrides skills of an earlier root by
// name. A View is the subset of a Catalog that one agent can use. A Registry is the index file of a
// skill repository.
//
// Skill content is untrusted data. The package reads only files inside a skill's directory, does
// not follow links out of it, and limits all sizes. It does not run skills.
package skills
