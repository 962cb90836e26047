// timeout memory
export async function execute() { let s = "a"; for (;;) s = s.replace(/a/g, "aa"); }
