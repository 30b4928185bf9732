# Machine code of kernels, `cuobjdump -sass` of one object after another, as a table: a line for each kernel and
# architecture, of `file`. What it counts:
#   early    loads from global memory before the wait for the launch before (ACQBULK): asynchronous copies, which fetch
#            weights, are none
#   serial   innermost loops with one or two global loads and no asynchronous copy: each round waits for memory
#   bar      barriers of the block; membar: fences (gpu scope, /sc: sequentially consistent); ivall: L1 thrown away
#   spills   loads and stores of registers that did not fit
#   bytes    of code
# By the code's order, not by its control flow.
function flush(  i, k, inner, n) {
    if (name == "") return
    serial = 0
    for (i = 1; i <= loops; i++) {
        inner = 1
        for (k = 1; k <= loops; k++)
            if (k != i && from[k] >= from[i] && to[k] <= to[i] && to[k] - from[k] < to[i] - from[i]) inner = 0
        n = 0
        for (k = 1; inner && k <= loads; k++)
            if (load[k] >= from[i] && load[k] <= to[i]) n += kind[k]
        if (inner && n > 0 && n <= 2) serial++
    }
    printf "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\n", file, name, arch, (acq >= 0 ? early : 0), serial, bar,
        (membar ? membar fences : 0), ivall, spills, at + 16
    name = ""
}
# awk has no strtonum everywhere.
function number(hex,  i, v) {
    for (i = 1; i <= length(hex); i++) v = v * 16 + index("0123456789abcdef", tolower(substr(hex, i, 1))) - 1
    return v
}
/^[ \t]*code for sm_/ { flush(); arch = $3 }
/Function :/ {
    flush()
    name = $3
    acq = -1
    loops = loads = plain = early = bar = membar = ivall = spills = 0
    fences = ""
}
/^[ \t]*\/\*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]+\*\// {
    match($0, /\/\*[0-9a-f]+\*\//)
    at = number(substr($0, RSTART + 2, RLENGTH - 4))
    code = substr($0, RSTART + RLENGTH)
    sub(/\/\*.*/, "", code)
    sub(/^[ \t{]*/, "", code)
    sub(/^@!?U?P[0-9T]+ +/, "", code)
    if (code ~ /^ACQBULK/ && acq < 0) { acq = at; early = plain }
    if (code ~ /^(LDG|LD)[. ]/) { load[++loads] = at; kind[loads] = 1; plain++ }
    if (code ~ /^LDGSTS/) { load[++loads] = at; kind[loads] = 1000 }
    if (code ~ /^BAR\.SYNC/) bar++
    if (code ~ /^MEMBAR/) { membar++; if (code ~ /\.SC/) fences = "/sc" }
    if (code ~ /^CCTL\.IVALL/) ivall++
    if (code ~ /^(STL|LDL)[. ]/) spills++
    if (code ~ /^BRA/ && match(code, /0x[0-9a-f]+/)) {
        target = number(substr(code, RSTART + 2, RLENGTH - 2))
        if (target < at) { from[++loops] = target; to[loops] = at }
    }
}
END { flush() }
