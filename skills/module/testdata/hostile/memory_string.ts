// memory threw
export async function execute() { let s = "abcdefgh"; for (;;) s += s + s.length; }
