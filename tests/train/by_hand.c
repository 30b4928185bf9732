#include "by_hand.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct dims {
    int    M, K, d, dt, F, nh, nkv, hd, W, I, V, R; // W: width of qkv; F: width of features; R: of what `out` reads
    double eps;
} dims;

// What a step keeps for its backward.
typedef struct step {
    double *hidden, *emb, *x, *qkv, *prob, *o, *h1, *z, *gu, *act, *h2, *y, *r; // r: the head's projection of y
} step;

static double *zeros(size_t n) {
    double *p = calloc(n ? n : 1, sizeof *p);
    if (!p) abort();
    return p;
}

// y = x w^T
static void matmul(double *y, const double *x, const double *w, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int c = 0; c < k; c++)
                s += x[i * k + c] * w[j * k + c];
            y[i * n + j] = s;
        }
}

// dx += dy w,  dw += dy^T x
static void matmul_back(double *dx, double *dw, const double *dy, const double *x, const double *w, int m, int n,
                        int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int c = 0; c < k; c++) {
                if (dx) dx[i * k + c] += dy[i * n + j] * w[j * k + c];
                dw[j * k + c] += dy[i * n + j] * x[i * k + c];
            }
}

static double rstd(const double *x, int d, double eps) {
    double s = 0;
    for (int j = 0; j < d; j++)
        s += x[j] * x[j];
    return 1 / sqrt(s / d + eps);
}

// y = x g / rms(x), row by row; stride: of y.
static void norm(double *y, int stride, const double *x, const double *g, int m, int d, double eps) {
    for (int i = 0; i < m; i++) {
        double s = rstd(x + i * d, d, eps);
        for (int j = 0; j < d; j++)
            y[i * stride + j] = x[i * d + j] * s * g[j];
    }
}

static void norm_back(double *dx, double *dg, const double *dy, int stride, const double *x, const double *g, int m,
                      int d, double eps) {
    for (int i = 0; i < m; i++) {
        const double *xi = x + i * d, *dyi = dy + i * stride;
        double        s = rstd(xi, d, eps), along = 0;
        for (int j = 0; j < d; j++) {
            dg[j] += dyi[j] * xi[j] * s;
            along += dyi[j] * g[j] * xi[j];
        }
        // d(x s)/dx = s I - s^3 x x^T / d
        for (int j = 0; j < d && dx; j++)
            dx[i * d + j] += s * dyi[j] * g[j] - s * s * s * xi[j] * along / d;
    }
}

// Rotates (sign 1) or rotates back (sign -1) the query and key heads of each row.
static void rotate(double *qkv, const dims *D, const pl_unroll *u, int k, double sign) {
    const double *c = u->model->cos.data, *s = u->model->sin.data;
    int           half = D->hd / 2;
    for (int t = 0; t < D->M; t++)
        for (int h = 0; h < D->nh + D->nkv; h++)
            for (int i = 0; i < half; i++) {
                int     at = (u->pack.pos[t] + k) * half + i;
                double *a = &qkv[t * D->W + h * D->hd + i], *b = a + half;
                double  x = *a, y = *b;
                *a = x * c[at] - sign * y * s[at];
                *b = y * c[at] + sign * x * s[at];
            }
}

// The keys that row t sees at step k, in order: block 0 from lo to t, then its own rows of blocks 1..k.
static int n_keys(const pl_unroll *u, int t, int k) {
    return t - u->pack.lo[t] + 1 + k;
}
static void key_at(const pl_unroll *u, int t, int j, int *block, int *row) {
    int causal = t - u->pack.lo[t] + 1;
    *block = j < causal ? 0 : j - causal + 1;
    *row = j < causal ? u->pack.lo[t] + j : t;
}

static void attend(step *s, const dims *D, const pl_unroll *u, int k) {
    int    keys_max = D->M + D->K;
    double scale = 1 / sqrt(D->hd);
    for (int t = 0; t < D->M; t++)
        for (int h = 0; h < D->nh; h++) {
            double       *p = s[k].prob + (t * D->nh + h) * keys_max, top = -INFINITY, sum = 0;
            const double *q = s[k].qkv + t * D->W + h * D->hd;
            int           kv = h / (D->nh / D->nkv), n = n_keys(u, t, k), block, row;
            for (int j = 0; j < n; j++) {
                key_at(u, t, j, &block, &row);
                const double *key = s[block].qkv + row * D->W + (D->nh + kv) * D->hd;
                p[j] = 0;
                for (int c = 0; c < D->hd; c++)
                    p[j] += scale * q[c] * key[c];
                top = fmax(top, p[j]);
            }
            for (int j = 0; j < n; j++)
                sum += p[j] = exp(p[j] - top);
            for (int j = 0; j < n; j++) {
                p[j] /= sum;
                key_at(u, t, j, &block, &row);
                const double *value = s[block].qkv + row * D->W + (D->nh + D->nkv + kv) * D->hd;
                for (int c = 0; c < D->hd; c++)
                    s[k].o[(t * D->nh + h) * D->hd + c] += p[j] * value[c];
            }
        }
}

static void attend_back(double **dqkv, const double *d_o, const step *s, const dims *D, const pl_unroll *u, int k) {
    int    keys_max = D->M + D->K;
    double scale = 1 / sqrt(D->hd);
    for (int t = 0; t < D->M; t++)
        for (int h = 0; h < D->nh; h++) {
            const double *p = s[k].prob + (t * D->nh + h) * keys_max, *g = d_o + (t * D->nh + h) * D->hd;
            const double *q = s[k].qkv + t * D->W + h * D->hd;
            int           kv = h / (D->nh / D->nkv), n = n_keys(u, t, k), block, row;
            double        mean = 0, *dp = zeros((size_t)n);
            for (int j = 0; j < n; j++) {
                key_at(u, t, j, &block, &row);
                int at = row * D->W + (D->nh + D->nkv + kv) * D->hd;
                for (int c = 0; c < D->hd; c++) {
                    dp[j] += g[c] * s[block].qkv[at + c];
                    dqkv[block][at + c] += p[j] * g[c];
                }
                mean += p[j] * dp[j];
            }
            for (int j = 0; j < n; j++) {
                key_at(u, t, j, &block, &row);
                int    at = row * D->W + (D->nh + kv) * D->hd;
                double ds = scale * p[j] * (dp[j] - mean);
                for (int c = 0; c < D->hd; c++) {
                    dqkv[k][t * D->W + h * D->hd + c] += ds * s[block].qkv[at + c];
                    dqkv[block][at + c] += ds * q[c];
                }
            }
            free(dp);
        }
}

static void embed(double *e, const dims *D, const pl_unroll *u, int k) {
    const float *w = u->model->embed.data; // F32 in the tests
    for (int t = 0; t < D->M; t++) {
        int32_t id = u->pack.token[k * D->M + t];
        for (int j = 0; j < D->d; j++)
            e[t * D->d + j] = id < 0 ? 0 : (double)w[id * D->d + j];
    }
}

static void forward(step *s, const dims *D, const pl_unroll *u, int k) {
    const pl_eagle3 *e = (const pl_eagle3 *)u->model;
    const pl_layer  *w = &e->layer[0];
    size_t           m = (size_t)D->M;
    int              d = D->d;
    s[k].emb = zeros(m * (size_t)d);
    s[k].x = zeros(m * 2 * (size_t)d);
    s[k].qkv = zeros(m * (size_t)D->W);
    s[k].prob = zeros(m * (size_t)D->nh * (size_t)(D->M + D->K));
    s[k].o = zeros(m * (size_t)(D->nh * D->hd));
    s[k].h1 = zeros(m * (size_t)d);
    s[k].z = zeros(m * (size_t)d);
    s[k].gu = zeros(m * 2 * (size_t)D->I);
    s[k].act = zeros(m * (size_t)D->I);
    s[k].h2 = zeros(m * (size_t)d);
    s[k].y = zeros(m * (size_t)d);
    s[k].r = zeros(m * (size_t)D->R);
    embed(s[k].emb, D, u, k);
    norm(s[k].x, 2 * d, s[k].emb, w->norm_attn.data, D->M, d, D->eps);
    norm(s[k].x + d, 2 * d, s[k].hidden, e->hidden_norm.data, D->M, d, D->eps);
    matmul(s[k].qkv, s[k].x, w->wqkv.data, D->M, D->W, 2 * d);
    rotate(s[k].qkv, D, u, k, 1);
    attend(s, D, u, k);
    matmul(s[k].h1, s[k].o, w->wo.data, D->M, d, D->nh * D->hd);
    for (int i = 0; i < D->M * d; i++)
        s[k].h1[i] += s[k].hidden[i];
    norm(s[k].z, d, s[k].h1, w->norm_mlp.data, D->M, d, D->eps);
    matmul(s[k].gu, s[k].z, w->wgu.data, D->M, 2 * D->I, d);
    for (int t = 0; t < D->M; t++)
        for (int i = 0; i < D->I; i++) {
            double g = s[k].gu[t * 2 * D->I + i];
            s[k].act[t * D->I + i] = g / (1 + exp(-g)) * s[k].gu[t * 2 * D->I + D->I + i];
        }
    matmul(s[k].h2, s[k].act, w->wdown.data, D->M, d, D->I);
    for (int i = 0; i < D->M * d; i++)
        s[k].h2[i] += s[k].h1[i];
    norm(s[k].y, d, s[k].h2, e->norm.data, D->M, d, D->eps);
    if (e->base.head.kind == &pl_head_full)
        memcpy(s[k].r, s[k].y, m * (size_t)d * sizeof(double));
    else
        matmul(s[k].r, s[k].y, e->base.head.down.data, D->M, D->R, d);
}

static void softmax(double *p, int n) {
    double top = -INFINITY, sum = 0;
    for (int j = 0; j < n; j++)
        top = fmax(top, p[j]);
    for (int j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - top);
    for (int j = 0; j < n; j++)
        p[j] /= sum;
}

// Losses of step k and, in dr, the gradient of what the output matrix read; its own gradient in dout.
static double losses(double *loss, double *dr, double *dout, const step *s, const dims *D, const pl_unroll *u, int k) {
    const float  *wt = u->wt.data; // F32 in the tests
    const double *last = u->pack.last_hidden, *out = u->model->head.out.data;
    double        total = 0, *p = zeros((size_t)D->V), *q = zeros((size_t)D->V);
    for (int t = 0; t < D->M; t++) {
        int    i = k * D->M + t, teacher = u->pack.teacher_row[i];
        double weight = (double)u->pack.weight[i];
        loss[i] = 0;
        if (teacher < 0 || weight == 0) continue;
        for (int v = 0; v < D->V; v++) {
            p[v] = q[v] = 0;
            for (int j = 0; j < D->dt; j++)
                p[v] += last[teacher * D->dt + j] * (double)wt[v * D->dt + j];
            if (u->opt.teacher_cap > 0) p[v] = u->opt.teacher_cap * tanh(p[v] / u->opt.teacher_cap);
            for (int j = 0; j < D->R; j++)
                q[v] += s[k].r[t * D->R + j] * out[v * D->R + j];
        }
        softmax(p, D->V);
        softmax(q, D->V);
        for (int v = 0; v < D->V; v++) {
            loss[i] += p[v] * (log(p[v]) - log(q[v]));
            double dz = weight * (q[v] - p[v]);
            for (int j = 0; j < D->R; j++) {
                dr[t * D->R + j] += dz * out[v * D->R + j];
                dout[v * D->R + j] += dz * s[k].r[t * D->R + j];
            }
        }
        total += weight * loss[i];
    }
    free(p);
    free(q);
    return total;
}

// Where a parameter's gradient goes.
static double *at(const pl_param_block *b, double *grad, const pl_tensor *t) {
    return grad + ((const double *)t->grad - (const double *)b->grad);
}

// dnext: gradient of the step's un-normed output from the next step; replaced by the gradient of its input.
static void backward(step *s, const dims *D, const pl_unroll *u, const pl_param_block *b, double *grad, double **dqkv,
                     double *dnext, const double *dr, int k) {
    const pl_eagle3 *e = (const pl_eagle3 *)u->model;
    const pl_layer  *w = &e->layer[0];
    size_t           m = (size_t)D->M;
    int              d = D->d;
    double          *dy = zeros(m * (size_t)d), *dact = zeros(m * (size_t)D->I), *dgu = zeros(m * 2 * (size_t)D->I);
    double *dz = zeros(m * (size_t)d), *d_o = zeros(m * (size_t)(D->nh * D->hd)), *dx = zeros(m * 2 * (size_t)d);
    if (e->base.head.kind == &pl_head_full)
        memcpy(dy, dr, m * (size_t)d * sizeof(double));
    else
        matmul_back(dy, at(b, grad, &e->base.head.down), dr, s[k].y, e->base.head.down.data, D->M, D->R, d);
    norm_back(dnext, at(b, grad, &e->norm), dy, d, s[k].h2, e->norm.data, D->M, d, D->eps); // dnext is now dh2
    matmul_back(dact, at(b, grad, &w->wdown), dnext, s[k].act, w->wdown.data, D->M, d, D->I);
    for (int t = 0; t < D->M; t++)
        for (int i = 0; i < D->I; i++) {
            int    g_at = t * 2 * D->I + i, u_at = g_at + D->I;
            double g = s[k].gu[g_at], sig = 1 / (1 + exp(-g)), da = dact[t * D->I + i];
            dgu[g_at] = da * s[k].gu[u_at] * sig * (1 + g * (1 - sig));
            dgu[u_at] = da * g * sig;
        }
    matmul_back(dz, at(b, grad, &w->wgu), dgu, s[k].z, w->wgu.data, D->M, 2 * D->I, d);
    norm_back(dnext, at(b, grad, &w->norm_mlp), dz, d, s[k].h1, w->norm_mlp.data, D->M, d, D->eps); // dh1, dhidden too
    matmul_back(d_o, at(b, grad, &w->wo), dnext, s[k].o, w->wo.data, D->M, d, D->nh * D->hd);
    attend_back(dqkv, d_o, s, D, u, k);
    // All later steps have left their share in dqkv[k] by now.
    rotate(dqkv[k], D, u, k, -1);
    matmul_back(dx, at(b, grad, &w->wqkv), dqkv[k], s[k].x, w->wqkv.data, D->M, D->W, 2 * d);
    norm_back(NULL, at(b, grad, &w->norm_attn), dx, 2 * d, s[k].emb, w->norm_attn.data, D->M, d, D->eps);
    norm_back(dnext, at(b, grad, &e->hidden_norm), dx + d, 2 * d, s[k].hidden, e->hidden_norm.data, D->M, d, D->eps);
    free(dy), free(dact), free(dgu), free(dz), free(d_o), free(dx);
}

double by_hand_drafter(const pl_unroll *u, const pl_param_block *b, double *grad, double *loss) {
    const pl_eagle3      *e = (const pl_eagle3 *)u->model;
    const pl_layer_shape *sh = &e->base.shape;
    dims                  D = {.M = (int)u->pack.rows,
                               .K = u->pack.steps,
                               .d = (int)sh->d,
                               .dt = (int)u->pack.d,
                               .F = (int)u->pack.width,
                               .nh = sh->nh,
                               .nkv = sh->nkv,
                               .hd = sh->hd,
                               .W = (sh->nh + 2 * sh->nkv) * sh->hd,
                               .I = (int)sh->inter,
                               .V = (int)e->base.head.vocab,
                               .R = (int)e->base.head.rank,
                               .eps = sh->eps};
    step                  s[PL_MAX_UNROLL + 1] = {{0}};
    double               *dqkv[PL_MAX_UNROLL], *dr[PL_MAX_UNROLL], total = 0;
    size_t                m = (size_t)D.M;
    s[0].hidden = zeros(m * (size_t)D.d);
    matmul(s[0].hidden, u->pack.features, e->fc.data, D.M, D.d, D.F);
    for (int k = 0; k < D.K; k++) {
        forward(s, &D, u, k);
        s[k + 1].hidden = s[k].h2;
        dqkv[k] = zeros(m * (size_t)D.W);
        dr[k] = zeros(m * (size_t)D.R);
        total += losses(loss, dr[k], at(b, grad, &e->base.head.out), s, &D, u, k);
    }
    double *dhidden = zeros(m * (size_t)D.d);
    for (int k = D.K - 1; k >= 0; k--)
        backward(s, &D, u, b, grad, dqkv, dhidden, dr[k], k);
    matmul_back(NULL, at(b, grad, &e->fc), dhidden, u->pack.features, e->fc.data, D.M, D.d, D.F);
    free(dhidden);
    free(s[0].hidden);
    for (int k = 0; k < D.K; k++) {
        free(s[k].emb), free(s[k].x), free(s[k].qkv), free(s[k].prob), free(s[k].o), free(s[k].h1), free(s[k].z);
        free(s[k].gu), free(s[k].act), free(s[k].h2), free(s[k].y), free(s[k].r), free(dqkv[k]), free(dr[k]);
    }
    return total;
}
