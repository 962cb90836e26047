// Package skills discovers, validates, lists and loads skills: directories with a SKILL.md that
// tells an agent how to do something, with a program (manifest.json and module.ts), or with both.
//
// A skill's frontmatter (name, description) and its manifest are read when it is discovered, its
// instructions when they are asked for; other files are listed and never read. The same file is read
// in two ways. Load is lenient: a skill that people already have works, and what is odd about it is a
// warning. Validate is strict: it checks a skill against the AgentSkills standard, and lists everything
// that is wrong. A manifest is read in one way, strictly: what a program gets is what it declares. All
// report Problems, each of which names its rule, its file and line if it has one, and what to do.
//
// A Catalog holds the skills of some roots, of which a later one overrides an earlier one by name;
// a View is the part of it that one agent may use. A Registry is what a repository of skills says of
// itself. The content of a skill is data: it is confined to its directory, links that lead out of it
// are not followed, and everything is bounded.
//
// The package runs nothing, and knows nothing of the rest of rouse.
package skills
