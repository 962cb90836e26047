// Package checkout gives each run of an agent its own clone of a git repository, and copies the
// resulting branch back.
//
// # Layout
//
//	DIR/mirrors/NAME-HASH.git   bare mirror of one repository; agents cannot write it
//	DIR/runs/RUN/clone.json     clone of a run and state of its result
//	DIR/runs/RUN/work           working folder, in which the agent can use all of git
//	DIR/runs/RUN/quarantine.git objects from the clone before they are checked
//
// A mirror contains only commits that branches and tags reach. A clone borrows the objects of its
// mirror (objects/info/alternates), so making it takes no longer than a checkout. The owner's
// objects are not hard-linked: an agent could overwrite them, and read stashes and unreachable
// objects.
//
// # Trust
//
// Once an agent has its clone, git of the host no longer runs in it. The configuration, hooks,
// attributes and alternates of the clone can name programs and files. [Store.Collect] runs git
// pack-objects in the sandbox, which sees only the clone and the mirror. The pack is then data for
// git index-pack --strict in the quarantine.
//
// Git of the host does not read the configuration of the owner's repository either. It works in a
// view of the repository: links to the objects and references, and a configuration with the few
// settings that describe how files are stored.
//
// # Steps
//
// Each step can be repeated after a crash. A clone is made under a temporary name and renamed when
// it is complete. References are changed by compare-and-swap, after clone.json has recorded the new
// value.
package checkout
