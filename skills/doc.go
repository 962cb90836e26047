// Package skills discovers, validates, lists and loads skills: directories with a SKILL.md that
// tells an agent how to do something, and with the files that it needs for it.
//
// A skill's frontmatter (name, description) is read when it is discovered, its instructions when
// they are asked for; other files are listed and never read. The same file is read in two ways.
// Load is lenient: a skill that people already have works, and what is odd about it is a warning.
// Validate is strict: it checks a skill against the AgentSkills standard, and lists everything that
// is wrong. Both report Problems, each of which names its rule, and its file and line if it has
// one.
//
// A Catalog holds the skills of some roots, of which a later one overrides an earlier one by name;
// a View is the part of it that one agent may use. The content of a skill is data: it is confined
// to its directory, links that lead out of it are not followed, and everything is bounded.
//
// The package knows nothing of the rest of rouse.
package skills
