# The planner's choice against measurement: awk -f tests/regret.awk PLAN BLOCK.json...
# PLAN: `plan --json`, a member a line. Blocks: results of `eval`, each from a process of its own, with the same methods
# and prompts. A machine's hiccups are longer than an answer, so a prompt's seconds are their median over blocks, and a
# head's speed is that of its prompts together. Regret: by how much the picked head is slower than the fastest one; its 95 %
# interval is a bootstrap's over blocks, between these two heads, or the picked one and the next where it is the fastest
# itself (the fastest of many alike is fastest partly by chance, which makes regret look larger than it is).
function value(line) { sub(/^[^:]*: */, "", line); gsub(/[]",}]/, "", line); return line }
function abs(x) { return x < 0 ? -x : x }
function median(x, n,    i, k, t) { # sorts x[1..n]
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && x[k - 1] > x[k]; k--) { t = x[k]; x[k] = x[k - 1]; x[k - 1] = t }
    return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
}
function seconds(name,    i, b, sum) { # with blocks use[1..blocks]
    for (i = 1; i <= prompts; i++) {
        for (b = 1; b <= blocks; b++) x[b] = took[name, use[b], i]
        sum += median(x, blocks)
    }
    return sum
}
FNR == 1 { file++; name = "" }
file == 1 && /^ *"recommended_head":/ { picked = value($0) }
file == 1 && /^ *"plans":/ { in_plans = 1 }
file == 1 && /^ *"chains":/ { in_plans = 0 }
file == 1 && in_plans && /^ *"name":/ { name = value($0) }
file == 1 && in_plans && /^ *"tau":/ { tau[name] = value($0) }
file == 1 && in_plans && /^ *"speedup":/ { predicted[name] = value($0) }
file > 1 && /^  *"name":/ { last = value($0) }
file > 1 && /^  *"tokens_per_second":/ && last != "" { # a method's speed is the line after its name; a category's is not
    name = last
    if (file == 2 && name != "plain") of[++heads] = name
}
file > 1 && !/^  *"name":/ { last = "" }
file > 1 && in_list && /\]/ { in_list = 0 }
file > 1 && in_list { took[name, file - 1, ++prompts] = value(":" $0) + 0 }
file > 1 && /"seconds_by_prompt":/ { in_list = 1; prompts = 0 }
END {
    blocks = file - 1
    for (i = 1; i <= heads; i++) {
        if (!(of[i] in predicted)) { print of[i] " was not planned"; exit 1 }
        if (of[i] == picked) own = i
    }
    if (!own) { print "picked \"" picked "\", which was not evaluated"; exit 1 }
    if (blocks < 2 || !prompts) { print "fewer than 2 blocks, or no seconds_by_prompt in them"; exit 1 }
    for (b = 1; b <= blocks; b++) use[b] = b
    plain = seconds("plain")
    for (i = 1; i <= heads; i++) {
        speedup[i] = plain / seconds(of[i]) # the same tokens
        y[i] = error[i] = predicted[of[i]] / speedup[i] - 1
        for (k = i; k > 1 && speedup[order[k - 1]] < speedup[i]; k--) order[k] = order[k - 1]
        order[k] = i
    }
    best = order[1]
    bias = median(y, heads)
    printf "%-18s %6s %10s %10s %8s\n", "head", "tau", "predicted", "measured", "error"
    for (k = 1; k <= heads; k++) {
        i = order[k]
        if (i == own) rank = k
        printf "%-18s %6.2f %10.3f %10.3f %+7.1f%%\n", of[i], tau[of[i]], predicted[of[i]], speedup[i], 100 * error[i]
        for (j = 1; j < i; j++) {
            pairs++
            if ((speedup[i] - speedup[j]) * (predicted[of[i]] - predicted[of[j]]) > 0) agree++
        }
        y[i] = abs(error[i] - bias)
    }
    off = median(y, heads)
    regret = 1 - speedup[own] / speedup[best]
    rival = own == best && heads > 1 ? order[2] : best
    srand(1)
    for (k = 1; k <= 400; k++) {
        for (b = 1; b <= blocks; b++) use[b] = 1 + int(rand() * blocks)
        again[k] = 1 - seconds(of[rival]) / seconds(picked)
    }
    median(again, 400)
    printf "picked %s, number %d of the %d heads measured, fastest %s; regret %.1f %% (%.1f to %.1f behind %s) over %d blocks; ", picked,
        rank, heads, of[best], 100 * regret, 100 * again[10], 100 * again[391], of[rival], blocks
    printf "predictions: %+.1f %% on the median, half of them within %.1f %% of that, %.0f %% of pairs in order%s\n", 100 * bias,
        100 * off, 100 * agree / pairs, (regret > 0.03 ? "; more than 3 % behind" : "")
}
